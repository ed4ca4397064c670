package node

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestClockThatIsRead is no test: TestAProcessHasItsClockSet runs it as a process that says the time whenever it is asked.
func TestClockThatIsRead(t *testing.T) {
	if os.Getenv("WEIR_SAYS_THE_TIME") == "" {
		t.Skip("run by another test")
	}
	began := time.Now()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Printf("time %d %d\n", time.Now().UnixNano(), time.Since(began))
	}
}

func TestAProcessHasItsClockSet(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestClockThatIsRead$")
	cmd.Env = append(os.Environ(), "WEIR_SAYS_THE_TIME=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	said := bufio.NewScanner(out)
	for _, by := range []time.Duration{0, time.Hour, -48 * time.Hour, 0} {
		if err := setClock(cmd.Process.Pid, by); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(in)
		for said.Scan() && !strings.HasPrefix(said.Text(), "time ") {
		}
		var day, since int64
		if _, err := fmt.Sscanf(said.Text(), "time %d %d", &day, &since); err != nil {
			t.Fatalf("%q: %v", said.Text(), err)
		}
		if off := time.Until(time.Unix(0, day)) - by; off.Abs() > time.Minute {
			t.Errorf("set by %s: its time is %s beside that", by, off)
		}
		if since < 0 || time.Duration(since) > time.Minute {
			t.Errorf("set by %s: an interval is %s", by, time.Duration(since))
		}
	}
}
