package main

// A node is a package in the picture: its place, and its job in a few words. An arrow leads
// to each package that it imports, unless a longer way of arrows leads there too.
type node struct {
	name    string
	x, y    int
	columns int
	job     string
	imports []string
}

const (
	column    = 198 // the distance of two columns
	nodeWidth = 186
	layer     = 92 // the distance of two layers
	nodeHigh  = 48
)

var nodes = []node{
	{"shardlease", 2, 0, 1, "worker, supervisor", []string{"internal/engine"}},
	{"dynamostore", 0, 1, 1, "the store in DynamoDB", []string{"internal/protocol"}},
	{"shardlease/storetest", 1, 1, 1, "suite for any store", []string{"internal/protocol"}},
	{"internal/engine", 2, 1, 1, "every decision of a worker", []string{"internal/protocol", "shardlease/event", "internal/handoff"}},
	{"memstore", 0, 2, 1, "the store in memory", []string{"shardlease/lease"}},
	{"internal/protocol", 1, 2, 1, "transitions, refusals", []string{"shardlease/lease"}},
	{"shardlease/event", 2, 2, 1, "events and causes", []string{"shardlease/lease"}},
	{"internal/handoff", 3, 2, 1, "both sides of a move", []string{"rebalance"}},
	{"shardlease/lease", 0, 3, 3, "rows, seats, writes, and the contract of a store", []string{"checkpoint", "rebalance"}},
	{"checkpoint", 1, 4, 1, "positions, tracker", nil},
	{"rebalance", 3, 4, 1, "planner, modes, terms", nil},
}

func (n node) left() int   { return 20 + n.x*column }
func (n node) top() int    { return 46 + n.y*layer }
func (n node) right() int  { return n.left() + (n.columns-1)*column + nodeWidth }
func (n node) middle() int { return (n.left() + n.right()) / 2 }

func packages() string {
	d := draw(46+4*layer+nodeHigh+44, "The packages: imports point down",
		"Package shardlease imports the engine. The engine imports the protocol, the events and the machines of a move. They, the stores and the "+
			"store suite rest on package lease, which rests on checkpoint and rebalance. Only dynamostore imports the AWS SDK.")
	byName := map[string]node{}
	for _, n := range nodes {
		byName[n.name] = n
	}
	for _, n := range nodes {
		for _, name := range n.imports {
			to := byName[name]
			from := clamp(to.middle(), n.left()+16, n.right()-16)
			d.arrow(from, n.top()+nodeHigh, clamp(from, to.left()+16, to.right()-16), to.top()-2)
		}
	}
	for _, n := range nodes {
		d.box("card", n.left(), n.top(), n.right()-n.left(), nodeHigh)
		d.centred("strong", n.middle(), n.top()+20, n.name)
		d.centred("soft", n.middle(), n.top()+38, n.job)
	}
	d.text("soft", 20, 46+4*layer+nodeHigh+26, "An arrow is an import. A package may also import whatever its arrows lead to. dynamostore imports the AWS SDK.")
	return d.end()
}

func clamp(x, low, high int) int { return max(low, min(x, high)) }
