# vim edits a file by script; tmux runs a window whose shell writes one.
TERM=dumb vim -es -u NONE -c 'normal ihello from vim' -c 'wq! edited' < /dev/null
cat edited
tmux -S "$PWD/sock" -f /dev/null new-session -d 'echo in tmux > window; sleep 20'
for _ in $(seq 100); do [ -s window ] && break; sleep 0.05; done
cat window
tmux -S "$PWD/sock" list-sessions -F '#{session_windows}'
tmux -S "$PWD/sock" kill-server
for _ in $(seq 100); do pgrep -f "$PWD/sock" > /dev/null || break; sleep 0.05; done
rm -f sock
