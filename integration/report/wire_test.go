package report

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	"github.com/shardlease/shardlease-go/integration/internal/fleet"
	"github.com/shardlease/shardlease-go/integration/internal/network"
	"github.com/shardlease/shardlease-go/internal/attr"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// A wire is the network of one worker. It counts requests by their purpose.
type wire struct {
	worker *fleet.Worker
	next   http.RoundTripper
	meter  *meter // nil if units are not counted

	mu   sync.Mutex
	sent traffic
}

// traffic contains the numbers of requests that were sent.
type traffic struct {
	all      int
	beats    int // heartbeats and other swaps of a seat
	seats    int // seats that were created, given up or evicted
	plans    int // writes of the plan and of targets
	looks    int // listings of the seats
	listings int // listings of the lease rows
	creates  int // lease rows created
	handed   int // changes of hands: claims, handovers, takeovers, releases
	offers   int // offers made and withdrawn
	commits  int // all other writes of lease rows
	refused  int // writes of lease rows that the table refused
}

// rows returns the number of writes of existing lease rows.
func (c traffic) rows() int { return c.handed + c.offers + c.commits }

func (c traffic) plus(d traffic, sign int) traffic {
	return traffic{
		c.all + sign*d.all, c.beats + sign*d.beats, c.seats + sign*d.seats, c.plans + sign*d.plans, c.looks + sign*d.looks,
		c.listings + sign*d.listings, c.creates + sign*d.creates, c.handed + sign*d.handed,
		c.offers + sign*d.offers, c.commits + sign*d.commits, c.refused + sign*d.refused,
	}
}

func (w *wire) RoundTrip(request *http.Request) (*http.Response, error) {
	action, body, err := network.Read(request)
	if err != nil {
		return nil, err
	}
	one := kindOf(action, body)
	response, err := w.next.RoundTrip(request)
	if err == nil && response.StatusCode != http.StatusOK && one.rows() > 0 {
		one.refused = 1
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = w.sent.plus(one, 1)
	return response, err
}

// traffic returns the requests that were sent until now.
func (w *wire) traffic() traffic {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent
}

// kindOf counts one request. It reads the request itself, and so does not depend on the library's own
// reports. It leaves out the additions to the counts of ends, as the meter does: they come up to a minute after a move, and in a
// settled fleet there are none (TestSettledFleetCountsNothing).
func kindOf(action string, body []byte) traffic {
	var asked struct {
		Key, Item        item
		UpdateExpression string
		Values           item `json:"ExpressionAttributeValues"`
	}
	_ = json.Unmarshal(body, &asked)
	partition := partitionOf(asked.Key, asked.Item, asked.Values)
	seat := strings.HasSuffix(partition, "/"+lease.KindSeat.String())
	target := strings.HasSuffix(partition, "/"+lease.KindTarget.String())
	write := action != "Query" && action != "GetItem"
	plan := lease.Plan{}.Key().Name
	set, remove, _ := strings.Cut(asked.UpdateExpression, "REMOVE ")
	switch {
	case isOfEnds(partition):
		return traffic{}
	case action == "Query" && seat:
		return traffic{all: 1, looks: 1}
	case action == "Query" && !target:
		return traffic{all: 1, listings: 1}
	case write && (target || nameOf(asked.Key, asked.Item) == plan):
		return traffic{all: 1, plans: 1}
	case action == "UpdateItem" && seat:
		return traffic{all: 1, beats: 1}
	case seat && action != "GetItem":
		return traffic{all: 1, seats: 1}
	case action == "PutItem":
		return traffic{all: 1, creates: 1}
	case action != "UpdateItem":
		return traffic{all: 1}
	case strings.Contains(set, "#"+attr.Generation+" = "):
		return traffic{all: 1, handed: 1}
	case strings.Contains(set+remove, "#"+attr.Offer):
		return traffic{all: 1, offers: 1}
	}
	return traffic{all: 1, commits: 1}
}

// isOfEnds reports whether a request is about the counts of ends.
func isOfEnds(partition string) bool {
	return strings.HasSuffix(partition, "/"+lease.KindEnds.String())
}

// partitionOf returns the group and the kind that a request is about.
func partitionOf(key, put, values item) string {
	for _, value := range []map[string]any{key[attr.Group], put[attr.Group], values[":0"]} {
		if s, ok := value["S"].(string); ok {
			return s
		}
	}
	return ""
}

// nameOf returns the name of the record that a write is about.
func nameOf(key, put item) string {
	for _, value := range []map[string]any{key[attr.Key], put[attr.Key]} {
		if s, ok := value["S"].(string); ok {
			return s
		}
	}
	return ""
}
