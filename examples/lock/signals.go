//go:build darwin || linux

package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// forwarded are the signals that lock passes on to the program.
var forwarded = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
}

// notify returns a channel with the signals that are to be forwarded. A signal that is ignored, as
// SIGHUP is under nohup, stays ignored, here and in the program.
func notify() <-chan os.Signal {
	signals := make(chan os.Signal, 16)
	for _, s := range forwarded {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	return signals
}

// fromTerminal reports whether a terminal sends a signal to its whole foreground process group. With
// -foreground the program is in that group, and has the signal already.
func fromTerminal(s os.Signal) bool {
	return s == syscall.SIGINT || s == syscall.SIGQUIT || s == syscall.SIGWINCH
}

// An interruption is a signal that has arrived before the program was started.
type interruption struct{ signal syscall.Signal }

func (i interruption) Error() string { return "interrupted: " + i.signal.String() }

// interruptible returns a context that ends at the first signal, with an interruption as its cause. After
// a call of settle, signals do not end the context.
func interruptible(signals <-chan os.Signal) (ctx context.Context, settle func()) {
	ctx, interrupt := context.WithCancelCause(context.Background())
	settled := make(chan struct{})
	var wait sync.WaitGroup
	wait.Go(func() {
		for {
			select {
			case s := <-signals:
				if s != syscall.SIGWINCH {
					interrupt(interruption{s.(syscall.Signal)})
				}
			case <-settled:
				return
			}
		}
	})
	return ctx, sync.OnceFunc(func() { close(settled); wait.Wait() })
}
