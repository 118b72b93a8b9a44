package attr

import (
	"fmt"
	"hash/fnv"
	"iter"
	"strconv"
	"strings"
)

// The workers under which a shard has failed are packed into one attribute: number of failures
// and hash of the name of each, the worker of the latest failure first, with spaces between. A row
// has no room for the names: its transfers have those, as far as it remembers them.

// mostFailed is how many workers a row remembers. Two workers that are well decide whether the
// shard is at fault.
const mostFailed = 3

// Hashed returns the hash of the name of a worker.
func Hashed(worker string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(worker))
	return fmt.Sprintf("%08x", h.Sum32())
}

// AddFailed returns the packed workers after one more failure, under the worker of that name. Of
// the failures before, the latest count, as many as left says.
func AddFailed(packed, worker string, left int64) string {
	mine, count, others := Hashed(worker), int64(1), []string{}
	for hash, n := range Failed(packed, left) {
		if hash == mine {
			count += n
		} else if hash != "" && len(others) < mostFailed-1 {
			others = append(others, strconv.FormatInt(n, 10)+" "+hash)
		}
	}
	return strings.Join(append([]string{strconv.FormatInt(count, 10) + " " + mine}, others...), " ")
}

// Failed returns the hashed name and the number of failures of each of the packed workers, of the
// latest failures, as many as left says. Those of which the worker is not known come last, with
// an empty hash.
func Failed(packed string, left int64) iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for packed != "" && left > 0 {
			var number, hash string
			number, packed, _ = strings.Cut(packed, " ")
			hash, packed, _ = strings.Cut(packed, " ")
			n, err := strconv.ParseInt(number, 10, 64)
			if err != nil || n < 1 || hash == "" {
				break
			}
			n = min(n, left)
			if left -= n; !yield(hash, n) {
				return
			}
		}
		if left > 0 {
			yield("", left)
		}
	}
}
