# npm: packs a package, installs it and another from the tree, runs what they bring.
export npm_config_cache=$PWD/cache npm_config_offline=true npm_config_audit=false npm_config_fund=false
export npm_config_update_notifier=false
mkdir -p greet/bin plain app
echo '{ "name": "greet", "version": "1.2.3", "bin": { "greet": "bin/greet.js" }, "main": "index.js" }' > greet/package.json
echo 'module.exports = name => `hello ${name}`;' > greet/index.js
printf '#!/usr/bin/env node\nconsole.log(require("..")(process.argv[2]));\n' > greet/bin/greet.js
echo '{ "name": "plain", "version": "0.0.1" }' > plain/package.json; echo 'exports.answer = 42;' > plain/index.js
cat > app/package.json <<'J'
{ "name": "app", "version": "1.0.0", "private": true,
  "scripts": { "start": "greet world && node -p 'require(\"plain\").answer'", "postinstall": "echo installed > mark" } }
J
(cd greet && npm pack --silent --pack-destination ..)
tar tzf greet-1.2.3.tgz | sort
cd app
npm install --silent ../greet-1.2.3.tgz ../plain && npm install --silent
cat mark; npm ls --depth=0 2> /dev/null | tail -n +2 | grep -o '[a-z]*@[0-9.]*' | sort
npm start --silent
npm ci --silent && npm exec --no -- greet again 2> /dev/null
npm uninstall --silent greet && ls node_modules
cd .. && rm -rf cache greet-1.2.3.tgz app/node_modules app/package-lock.json
