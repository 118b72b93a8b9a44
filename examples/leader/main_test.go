//go:build darwin || linux

package main

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/examples/internal/ledger"
	"github.com/shardlease/shardlease-go/examples/internal/process"
	"github.com/shardlease/shardlease-go/shardlease/fence"
)

func TestMain(m *testing.M) { process.Main(m, map[string]func(){"leader": main}) }

// TestPausedLeaderIsReplaced: a leader is paused while one of its effects is on the way. Another
// candidate leads, and its effects are accepted. Then the effect of the old leader arrives, and the
// sink refuses it. A request that came to the old leader meanwhile is not answered in the name of the leader. An
// observer still believes in the old leader, until it reads a newer row.
func TestPausedLeaderIsReplaced(t *testing.T) {
	var sink ledger.Ledger
	network := process.NewNetwork(t, &sink, "/3")
	leases, file := process.Table(t)
	start := func(role string, flags ...string) *process.Process {
		return process.Start(t, "leader", slices.Concat([]string{role, "-ttl", process.Time(time.Second).String(), "-sink", network.URL}, leases, flags)...)
	}

	observer := start("observer")
	observer.Await("nobody leads: generation 0")
	one := start("candidate", "-name", "one", "-listen", "localhost:0")
	url := one.Await(`answers at (\S+)`)[1]
	old := <-network.Delayed
	observer.Await("one leads under generation " + old)
	if status, text := ask(url); status != http.StatusOK || text != "leader under generation "+old+", confirmed\n" {
		t.Errorf("the leader answers %d %q", status, text)
	}

	one.Pause(file)
	late := make(chan int, 1)
	go func() { status, _ := ask(url); late <- status }()
	two := start("candidate", "-name", "two")
	next := two.Await(`leads under generation (\d+)`)[1]
	observer.Await("two leads under generation " + next)
	process.Until(t, "an effect of the new leader", func() bool { return last(&sink) == next })
	if status := network.Arrive(); status != http.StatusPreconditionFailed {
		t.Errorf("the late effect of the old leader got %d", status)
	}
	if refused := sink.Refused(); len(refused) != 1 || generation(refused[0]) != old {
		t.Errorf("the sink refused %v, and not generation %s", refused, old)
	}

	// The old leader wakes up. It notices that it was replaced, and is a candidate again.
	one.Signal(syscall.SIGCONT)
	one.Await("stopped leading under generation " + old + ": .*")
	if status := <-late; status != http.StatusServiceUnavailable {
		t.Errorf("a leader that was replaced while it was paused answers %d", status)
	}
	two.Signal(syscall.SIGTERM)
	if code := two.Wait(); code != 0 {
		t.Errorf("two ended with code %d", code)
	}
	process.Until(t, "another effect of the first candidate", func() bool {
		third := last(&sink)
		return third != old && third != next
	})
}

// ask sends a request to a candidate.
func ask(url string) (status int, text string) {
	response, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(body)
}

// last returns the generation of the last effect.
func last(sink *ledger.Ledger) string {
	effects := sink.Effects()
	return generation(effects[len(effects)-1].Token)
}

func generation(t fence.Token) string { return strconv.FormatInt(t.Generation, 10) }
