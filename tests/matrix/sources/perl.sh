# perl: files, pipes, fork, locks.
perl -e '
use Fcntl ":flock";
open(my $f, ">", "x") or die; print $f "hello\n" x 1000; close $f; print -s "x", "\n";
my $pid = fork; if (!$pid) { open(my $g, "+<", "x"); flock($g, LOCK_EX); seek($g, 0, 0); print $g "HELLO"; exit 3 }
waitpid $pid, 0; print $? >> 8, "\n";
open(my $p, "-|", "sort x | uniq -c") or die; print <$p>; close $p;
rename "x", "y" or die; print join(",", sort glob("*")), "\n"; print((stat "y")[7], "\n");
'
