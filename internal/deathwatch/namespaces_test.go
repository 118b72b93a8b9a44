//go:build linux

package deathwatch

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// insideVariable names the case that the test plays, in a network namespace of its own, which is the watcher's machine.
const insideVariable = "DEATHWATCH_INSIDE"

// TestInNetworkNamespaces: the watcher and its peers run on machines of their own, with real rules for packets. Rules on
// the watcher's machine refuse what leaves it, and pass by what it sends to itself, as those of firewalls and sidecars
// do. They let connections stand. No refusal counts meanwhile. Afterwards a peer is killed, and its death is seen.
func TestInNetworkNamespaces(t *testing.T) {
	t.Parallel()
	inside := os.Getenv(insideVariable)
	for name, rule := range map[string]string{
		"a firewall rejects new connections": "iptables -%s OUTPUT ! -o lo -p tcp --syn -j REJECT --reject-with tcp-reset",
		"a sidecar restarts":                 "iptables -t nat -%s OUTPUT ! -o lo -p tcp -j REDIRECT --to-ports 15001",
	} {
		for peers, doubt := range map[int]error{1: errVisits, 2: errOther} {
			switch title := fmt.Sprintf("%s, %d peers", name, peers); inside {
			case "":
				t.Run(title, func(t *testing.T) { runInside(t, title) })
			case title:
				refusedByRules(t, peers, rule, doubt)
			}
		}
	}
}

// runInside plays a case of TestInNetworkNamespaces in a network namespace of its own.
func runInside(t *testing.T, title string) {
	t.Parallel()
	for _, tool := range []string{"sh", "ip", "iptables"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs ip, iptables and root: %v", err)
		}
	}
	if os.Getuid() != 0 {
		t.Skip("needs root, to make network namespaces")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestInNetworkNamespaces$", "-test.v", "-test.timeout=2m")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	cmd.Env = append(os.Environ(), insideVariable+"="+title)
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, syscall.EPERM):
		t.Skipf("may make no network namespaces: %v", err)
	case err != nil:
		t.Fatalf("%v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skipf("%s", out)
	}
	t.Logf("%s", out)
}

// shell runs a command on the watcher's machine. If the machine cannot do that, the test is skipped.
func shell(t *testing.T, command string) {
	t.Helper()
	if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
		t.Skipf("this machine cannot: %s: %v: %s", command, err, out)
	}
}

// A machine is a shell in a network namespace of its own, with a wire to the watcher's machine.
type machine struct {
	gateway string // the watcher's machine, at the other end of the wire
	address string // of its peer
	in      io.Writer
	out     *bufio.Scanner
}

// newMachine starts the n-th machine.
func newMachine(t *testing.T, n int) *machine {
	t.Helper()
	cmd := exec.Command("sh") // it ends with its input, also if this process is killed
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	m := &machine{gateway: fmt.Sprintf("10.77.%d.1", n), address: fmt.Sprintf("10.77.%d.2:7946", n), in: in, out: bufio.NewScanner(out)}
	shell(t, fmt.Sprintf("ip link add w%d type veth peer name w netns %d && ip addr add 10.77.%d.1/24 dev w%[1]d && ip link set w%[1]d up", n, cmd.Process.Pid, n))
	m.run(t, "trap 'kill -9 $peer' EXIT")
	m.run(t, fmt.Sprintf("ip link set lo up; ip addr add 10.77.%d.2/24 dev w; ip link set w up; ip route add default via 10.77.%[1]d.1", n))
	return m
}

// run runs a command on the machine.
func (m *machine) run(t *testing.T, command string) {
	t.Helper()
	fmt.Fprintln(m.in, command+"; echo over")
	if !m.out.Scan() || m.out.Text() != "over" {
		t.Fatalf("%s: %q, %v", command, m.out.Text(), m.out.Err())
	}
}

// start starts a peer on the machine.
func (m *machine) start(t *testing.T, inc, watched string) {
	t.Helper()
	m.run(t, fmt.Sprintf("%s='%s %s %s' '%s' > /dev/null & peer=$!", peerVariable, inc, m.address, watched, os.Args[0]))
}

// kill kills the peer.
func (m *machine) kill(t *testing.T) { m.run(t, "kill -9 $peer") }

// refusedByRules watches so many peers, while a rule of the watcher's machine refuses connections.
func refusedByRules(t *testing.T, peers int, rule string, doubt error) {
	shell(t, "ip link set lo up")
	var all []*machine
	for n := range peers {
		all = append(all, newMachine(t, n+1))
	}
	l, err := net.Listen("tcp", all[0].gateway+":0")
	must(t, err)
	self, came := serve(t, l, "w-1"), new(side)
	w := watchFrom(t, self, came.dial)
	for n, m := range all {
		inc := fmt.Sprintf("p-%d", n)
		m.start(t, inc, self.address)
		waitForVisits(t, self, n+1) // so the peer listens too
		w.Watch(inc, m.address)
		w.expect(t, inc, Confirmed)
	}
	shell(t, fmt.Sprintf(rule, "A"))
	undo := sync.OnceFunc(func() { shell(t, fmt.Sprintf(rule, "D")) })
	defer undo()
	came.cut(all[0].address)
	w.expectDoubt(t, "p-0", doubt)
	undo()
	w.expect(t, "p-0", Confirmed)
	all[0].kill(t)
	w.expect(t, "p-0", Refused)
}

// waitForVisits waits until so many peers have connected to the watcher.
func waitForVisits(t *testing.T, s *served, peers int) {
	t.Helper()
	for end := time.Now().Add(limit); ; time.Sleep(10 * time.Millisecond) {
		s.mu.Lock()
		kept := len(s.kept)
		s.mu.Unlock()
		if kept >= peers {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d peers have connected", kept, peers)
		}
	}
}
