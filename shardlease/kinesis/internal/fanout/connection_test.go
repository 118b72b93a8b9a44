package fanout

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/internal/stream"
	"github.com/shardlease/shardlease-go/shardlease/kinesis/kinesistest"
)

// A network is between a client and a server that speaks HTTP/2, as Kinesis does. It is the listener of the server. Its
// connections are in memory, so that both sides can be in a bubble.
type network struct {
	dialled chan net.Conn
	closed  chan struct{}

	mu    sync.Mutex
	lost  map[int]bool // connections that lose all they get
	pipes []net.Conn   // four ends for each connection
}

// listen makes a network. Its client has the transport of the SDK.
func listen(t *testing.T, server *kinesistest.Server) (*network, *kinesis.Client) {
	t.Helper()
	behind := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, err := server.Do(r)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer func() { _ = out.Body.Close() }()
		for key := range out.Header {
			w.Header().Set(key, out.Header.Get(key))
		}
		w.WriteHeader(out.StatusCode)
		buffer := make([]byte, 64<<10)
		for {
			n, err := out.Body.Read(buffer)
			if _, failed := w.Write(buffer[:n]); failed != nil || err != nil {
				return
			}
			w.(http.Flusher).Flush()
		}
	}))
	_ = behind.Listener.Close()
	n := &network{dialled: make(chan net.Conn), closed: make(chan struct{}), lost: map[int]bool{}}
	behind.Listener, behind.EnableHTTP2 = n, true
	behind.StartTLS()
	t.Cleanup(func() {
		n.end()
		behind.Close()
	})
	return n, kinesis.New(server.Client().Options(), func(o *kinesis.Options) {
		o.BaseEndpoint = aws.String("https://kinesis.test")
		o.HTTPClient = awshttp.NewBuildableClient().WithTransportOptions(func(tr *http.Transport) {
			tr.DialContext = n.dial
			tr.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // a test
		})
	})
}

// dial connects the client with the server.
func (n *network) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, from := net.Pipe()
	to, server := net.Pipe()
	select {
	case n.dialled <- server:
	case <-n.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	n.mu.Lock()
	number := n.number()
	n.pipes = append(n.pipes, client, from, to, server)
	n.mu.Unlock()
	go n.pass(number, from, to)
	go n.pass(number, to, from)
	return client, nil
}

// number returns how many connections there have been.
func (n *network) number() int { return len(n.pipes) / 4 }

func (n *network) Accept() (net.Conn, error) {
	select {
	case conn := <-n.dialled:
		return conn, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error   { return nil } // end closes it
func (n *network) Addr() net.Addr { return new(net.TCPAddr) }

// end closes the network with all its connections.
func (n *network) end() {
	close(n.closed)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, conn := range n.pipes {
		_ = conn.Close()
	}
}

// pass passes bytes on. On a connection that is lost it takes them, and nobody hears of it.
func (n *network) pass(number int, from, to net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		k, err := from.Read(buffer)
		n.mu.Lock()
		lost := n.lost[number]
		n.mu.Unlock()
		if !lost {
			if _, failed := to.Write(buffer[:k]); failed == nil && err == nil {
				continue
			}
			_ = to.Close()
		}
		if err != nil {
			return
		}
	}
}

// lose loses the connections that there are, as a firewall does that forgets them.
func (n *network) lose() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.number() {
		n.lost[i] = true
	}
}

// TestLostConnection: a connection that is lost unnoticed is replaced, and not only the subscription on it. Another
// subscription on the same connection would be lost too.
func TestLostConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := kinesistest.New()
		orders := server.Create("orders", 1)
		arn, err := Register(t.Context(), server.Client(), orders.ARN(), "group")
		if err != nil {
			t.Fatal(err)
		}
		between, client := listen(t, server)
		r := &Reader{Client: Client(client), Consumer: arn, Counters: new(Counters)}
		orders.Put("a", []byte("1"))
		var lost time.Time
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
		defer cancel()
		for a, err := range r.Read(ctx, shard0, oldest, func(context.Context) error { return nil }) {
			if err != nil {
				t.Fatal(err)
			}
			if len(a.Records) > 0 && lost.IsZero() {
				between.lose()
				lost = time.Now()
				orders.Put("a", []byte("2"))
				continue
			}
			if len(a.Records) > 0 {
				t.Logf("read again after %v on connection %d, %d silences", time.Since(lost), between.number(), r.Counters.Silent.Load())
				return
			}
		}
		t.Error("the read has ended")
	})
}

// TestLostConnectionOfPolling: a reader that polls notices it too.
func TestLostConnectionOfPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := kinesistest.New()
		orders := server.Create("orders", 1)
		between, client := listen(t, server)
		s := &stream.Stream{Client: kinesis.New(client.Options(), stream.Pings), Name: "orders"}
		orders.Put("a", []byte("1"))
		var lost time.Time
		ctx, cancel := context.WithTimeout(t.Context(), 95*time.Second)
		defer cancel()
		for b, err := range s.Read(ctx, shard0, "", nil) {
			if err != nil {
				t.Fatal(err, time.Since(lost), between.number())
			}
			if len(b.Entries) > 0 && lost.IsZero() {
				between.lose()
				lost = time.Now()
				orders.Put("a", []byte("2"))
				continue
			}
			if len(b.Entries) > 0 {
				t.Logf("read again after %v on connection %d", time.Since(lost), between.number())
				return
			}
		}
		t.Error("the read has ended")
	})
}
