# pip: a wheel made by hand, installed into a virtual environment, run and removed.
export PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
python3 - <<'P'
import base64, hashlib, zipfile
files = {
    'greet/__init__.py': 'def main():\n    import greet.words\n    print("hello from", greet.words.PLACE)\n',
    'greet/words.py': 'PLACE = "a wheel"\n',
    'greet-1.2.dist-info/METADATA': 'Metadata-Version: 2.1\nName: greet\nVersion: 1.2\n',
    'greet-1.2.dist-info/WHEEL': 'Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
    'greet-1.2.dist-info/entry_points.txt': '[console_scripts]\ngreet = greet:main\n',
}
record = ''
with zipfile.ZipFile('greet-1.2-py3-none-any.whl', 'w') as wheel:
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip('=')
        record += f'{name},sha256={digest},{len(text)}\n'
        wheel.writestr(zipfile.ZipInfo(name), text)
    wheel.writestr(zipfile.ZipInfo('greet-1.2.dist-info/RECORD'), record + 'greet-1.2.dist-info/RECORD,,\n')
P
python3 -m venv v
v/bin/pip install -q ./greet-1.2-py3-none-any.whl
v/bin/greet
v/bin/python -c 'import greet, sys; print(greet.__file__.startswith(sys.prefix))'
v/bin/pip uninstall -q -y greet
[ ! -e v/bin/greet ] && ! v/bin/python -c 'import greet' 2> /dev/null && echo removed
rm -rf v
