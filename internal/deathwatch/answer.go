package deathwatch

import (
	"bytes"
	"errors"
	"fmt"
	"net"
)

// An answer is one line: this word, a space, and an incarnation.
const (
	word       = "shardlease "
	maxAnswer  = 128 // the most bytes that a link reads of an answer
	maxInc     = 96  // the most bytes of an incarnation
	firstPrint = '!' // the first and the last printable character of ASCII, without the space
	lastPrint  = '~'
)

// answerOf returns the answer of an incarnation.
func answerOf(incarnation string) []byte { return []byte(word + incarnation + "\n") }

// parseAnswer returns the incarnation in an answer. Nothing may follow the line, because a server
// sends nothing after it.
func parseAnswer(answer []byte) (string, error) {
	rest, found := bytes.CutPrefix(answer, []byte(word))
	inc, ended := bytes.CutSuffix(rest, []byte("\n"))
	if !found || !ended || !valid(string(inc)) {
		return "", fmt.Errorf("the answer is not that of a worker: %.40q", answer)
	}
	return string(inc), nil
}

// valid reports whether an incarnation can be sent in an answer.
func valid(incarnation string) bool {
	for _, c := range []byte(incarnation) {
		if c < firstPrint || c > lastPrint {
			return false
		}
	}
	return 0 < len(incarnation) && len(incarnation) <= maxInc
}

// readAnswer reads up to the end of a line, and returns the incarnation. The number of reads is
// limited, so that a connection whose reads return nothing cannot keep the link in a loop.
func readAnswer(conn net.Conn) (string, error) {
	answer, n := make([]byte, maxAnswer), 0
	for range maxAnswer {
		more, err := conn.Read(answer[n:])
		n += more
		if n == len(answer) || bytes.IndexByte(answer[n-more:n], '\n') >= 0 {
			return parseAnswer(answer[:n])
		}
		if err != nil {
			return "", fmt.Errorf("no answer: %w", err)
		}
	}
	return "", errors.New("no answer: the connection returns no bytes")
}
