package deathwatch

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// peersVariable makes the test binary run as many peers as its value says.
const peersVariable = "DEATHWATCH_PEERS"

// runPeers runs peers p-0, p-1 and so on, prints their addresses, and waits for the end of stdin.
func runPeers(count string) {
	n, err := strconv.Atoi(count)
	for i := range n {
		var l net.Listener
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			break
		}
		s := NewServer(l, func() {})
		s.Answer(fmt.Sprintf("p-%d", i))
		go s.Serve(func(f func()) { go f() })
		fmt.Println(l.Addr())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	io.Copy(io.Discard, os.Stdin)
}

// peerVariable makes the test binary run a peer: its incarnation, its address, and the address of a worker w-1 to which
// it keeps a connection.
const peerVariable = "DEATHWATCH_PEER"

// runPeer runs a peer until it is killed.
func runPeer(config string) {
	var inc, address, watched string
	if _, err := fmt.Sscan(config, &inc, &address, &watched); err != nil {
		panic(err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		panic(err)
	}
	start := func(f func()) { go f() }
	s := NewServer(l, func() {})
	s.Answer(inc)
	NewLinks(address, s, nil, start, func(Result) {}).Watch("w-1", watched)
	panic(s.Serve(start))
}

// startPeers starts a process of n peers, and returns it with their addresses.
func startPeers(t *testing.T, n int) (*exec.Cmd, []string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), peersVariable+"="+strconv.Itoa(n)), os.Stderr
	_, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	var addresses []string
	for lines := bufio.NewScanner(out); len(addresses) < n && lines.Scan(); {
		addresses = append(addresses, strings.TrimSpace(lines.Text()))
	}
	if len(addresses) < n {
		t.Fatalf("%d peers of %d have started", len(addresses), n)
	}
	return cmd, addresses
}

// TestKilledProcess: the death of a process that is killed is seen at once, because its kernel closes its sockets and
// the other peer answers.
func TestKilledProcess(t *testing.T) {
	quickest(t, 300*time.Millisecond, func() time.Duration {
		cmd, addresses := startPeers(t, 1)
		w := watchAsServer(t, nil)
		w.Watch("p-0", addresses[0])
		w.expect(t, "p-0", Confirmed)
		w.Watch("b-1", serve(t, listen(t), "b-1").address)
		w.expect(t, "b-1", Confirmed)
		began := time.Now()
		must(t, cmd.Process.Kill())
		w.expect(t, "p-0", Refused)
		return time.Since(began)
	})
}
