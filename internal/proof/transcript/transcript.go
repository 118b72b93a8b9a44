// Package transcript plays scripts to real engines and records their conversation: what each
// worker writes to the table, what the table answers, what the handlers are told, and which
// events are reported. The files in testdata are such transcripts. Each is a test, an
// example to read and a sequence diagram in one; start with testdata/01-claim.txt, which
// explains the notation.
//
// A transcript has three kinds of line: a comment begins with #, a command of the script with
// >, and a recorded line with a space. [Play] keeps the first two and records the third again:
//
//	go test ./internal/proof/transcript -update
//
// A script depends on the commands, inputs and outputs of workers, and on the table. It does not
// depend on the inside of an engine, so another engine can play the same scripts.
package transcript

import (
	"fmt"
	"strings"

	"github.com/shardlease/shardlease-go/internal/proof/virtual"
)

// Play runs the commands of a transcript, with engines that make returns, and returns the
// transcript with newly recorded lines.
func Play(text string, make virtual.Maker) (string, error) {
	s := newSession(make)
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, " ") {
			continue
		}
		s.out.WriteString(line + "\n")
		command, ok := strings.CutPrefix(line, "> ")
		if !ok {
			if line != "" && !strings.HasPrefix(line, "#") {
				return "", fmt.Errorf("line %d is neither a comment nor a command: %q", i+1, line)
			}
			continue
		}
		if err := s.do(command); err != nil {
			return "", fmt.Errorf("line %d: %q: %w", i+1, command, err)
		}
	}
	for name, w := range s.workers {
		if len(w.fates) > 0 {
			return "", fmt.Errorf("worker %s never sent the write that should have been misrouted", name)
		}
	}
	return strings.TrimRight(s.out.String(), "\n") + "\n", nil
}
