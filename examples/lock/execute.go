//go:build darwin || linux

package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/shardlease/shardlease-go/shardlease"
	"github.com/shardlease/shardlease-go/shardlease/fence"
)

// execute runs the program until it ends, and stops it if the lease is lost. It returns the exit code.
func (l *lock) execute(tenure *shardlease.Tenure, signals <-chan os.Signal) (int, error) {
	token, err := environment(tenure)
	if err != nil {
		return exitFailed, err
	}
	cmd := exec.Command(l.program[0], l.program[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), token...)
	cmd.SysProcAttr = leash()
	cmd.SysProcAttr.Setpgid = !l.foreground
	// The leash of Linux is tied to the thread that starts the program, so this thread must not end.
	runtime.LockOSThread()
	if err := cmd.Start(); errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return exitNotFound, err
	} else if err != nil {
		return exitCannotRun, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	lost := tenure.Soft().Done()
	send := func(s syscall.Signal) {
		to := cmd.Process.Pid
		if !l.foreground {
			to = -to // the whole group
		}
		_ = syscall.Kill(to, s) // an error means that the program has ended
	}

	var loss error
	var kill <-chan time.Time
	for {
		select {
		case s := <-signals:
			if !l.foreground || !fromTerminal(s) {
				send(s.(syscall.Signal))
			}
		case <-lost:
			lost, loss = nil, context.Cause(tenure.Soft())
			say("the lease %q is lost, the program is stopped: %v", l.name, loss)
			send(syscall.SIGTERM)
			send(syscall.SIGCONT) // a stopped program cannot obey
			kill = time.After(l.grace)
		case <-kill:
			send(syscall.SIGKILL)
		case <-ended:
			if loss == nil {
				return codeOf(cmd.ProcessState), nil
			}
			if !l.foreground {
				send(syscall.SIGKILL) // what the program has left behind in its group
			}
			return exitLost, nil
		}
	}
}

// environment returns the variables with the fencing token. SHARDLEASE_FENCE has one line for each field
// of the token in the form of HTTP headers, for curl -H @- and fence.Parse. SHARDLEASE_GENERATION is the
// number alone.
func environment(t *shardlease.Tenure) ([]string, error) {
	token, ok := fence.FromContext(t.Context())
	if !ok {
		return nil, fence.ErrMissing
	}
	fields, err := token.Fields()
	var lines []string
	for field, value := range fields {
		lines = append(lines, field+": "+value)
	}
	slices.Sort(lines)
	return []string{
		"SHARDLEASE_FENCE=" + strings.Join(lines, "\n"),
		"SHARDLEASE_GENERATION=" + strconv.FormatInt(token.Generation, 10),
	}, err
}

// codeOf returns the exit code of a program, as a shell does.
func codeOf(p *os.ProcessState) int {
	if status, ok := p.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.ExitCode()
}
