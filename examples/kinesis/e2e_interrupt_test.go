//go:build darwin || linux

package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestEndToEndInterrupt presses ctrl-C during the README's command: the consumer releases its
// shards, the local servers end after it, and the exit code is 0. Before, the servers received
// the signal too and ended first: the consumer waited 7 s for them, its leases expired, and the
// exit code was 1.
func TestEndToEndInterrupt(t *testing.T) {
	if os.Getenv("AWS_ENDPOINT_URL_KINESIS") == "" {
		t.Skip("no Node and Java: start this with ./run-local")
	}
	cmd := exec.Command("./run-local", "-stream", "orders", "-group", "orders", "-handoff", "cooperative", "-create-tables")
	for _, set := range os.Environ() {
		if !strings.HasPrefix(set, "AWS_ENDPOINT_URL_") { // the command must start its own servers
			cmd.Env = append(cmd.Env, set)
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// Processes that the command leaves running would keep this pipe open.
	log, in := io.Pipe()
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = in, in, 10*time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait(); _ = in.Close() }()
	var all strings.Builder
	released, begun := 0, time.Time{}
	kill := time.AfterFunc(2*time.Minute, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer kill.Stop()
	started := 0
	for lines := bufio.NewScanner(log); lines.Scan(); {
		all.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), `"event":"started"`) {
			if started++; started == 4 {
				begun = time.Now()
				_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) // as a terminal does
			}
		}
		if strings.Contains(lines.Text(), `"cause":"stopped"`) {
			released++
		}
	}
	if err := <-ended; err != nil || released != 4 || time.Since(begun) > 10*time.Second {
		t.Errorf("the command ends with %v after %v, with %d of 4 shards released\n%s", err, time.Since(begun), released, all.String())
	}
	t.Logf("ctrl-C took %v", time.Since(begun).Round(10*time.Millisecond))
}
