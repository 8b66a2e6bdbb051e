# A repository of 3,000 files lives through a working day.
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_PAGER=cat
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
export GIT_AUTHOR_DATE='2024-01-02T03:04:05Z' GIT_COMMITTER_DATE='2024-01-02T03:04:05Z'
git init -q -b main repo
cd repo
git config gc.auto 0; git config pack.threads 1; git config index.threads 1
for d in $(seq 1 60); do
  mkdir -p "dir$d/sub"
  for f in $(seq 1 50); do echo "file $f of $d: $((d * f))" > "dir$d/sub/f$f.txt"; done
done
ln -s dir1/sub link; chmod +x dir1/sub/f1.txt; printf 'ignored\n' > .gitignore; : > ignored
git add -A
git commit -q -m first
git rev-parse HEAD
git checkout -q -b work
for d in $(seq 1 60); do echo more >> "dir$d/sub/f1.txt"; done
git mv dir2 moved; git rm -q -r -f dir3; mkdir new; echo new > new/file
git add new
git status --porcelain | LC_ALL=C sort | cksum
git commit -q -a -m second
git rev-parse HEAD
git checkout -q main
git status --porcelain
git ls-files | wc -l
git diff --stat main work | tail -n 1
git merge -q --no-ff -m merge work
git stash list
echo changed > dir5/sub/f5.txt; git stash -q; git stash pop -q; git checkout -q -- dir5/sub/f5.txt
git log --oneline --graph
git gc -q --prune=now
git fsck --full --strict 2>&1
git count-objects -v | grep -v size
git clone -q . ../clone
cd ../clone && git rev-parse HEAD && git ls-files | wc -l
cd .. && rm -rf clone
