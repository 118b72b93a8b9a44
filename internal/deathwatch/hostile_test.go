//go:build unix

package deathwatch

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/shardlease/shardlease-go/internal/proof/fixture"
)

// certified returns a configuration of TLS for a server on the loopback, and one for its peers.
func certified(t testing.TB) (server, peer *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "worker"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	server = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	return server, &tls.Config{RootCAs: roots}
}

// TestTLS: a listener and a dialer of TLS work like those of TCP. To a watcher without the certificate of the server,
// the server is Silent, until it refuses connections. A watcher that does not reach even itself believes no refusal.
func TestTLS(t *testing.T) {
	t.Parallel()
	server, peer := certified(t)
	s := serve(t, tls.NewListener(listen(t), server), "a-1")
	own := serve(t, tls.NewListener(listen(t), server), "w-1")
	good := watchFrom(t, own, (&tls.Dialer{Config: peer}).DialContext)
	late := watchFrom(t, own, func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		config := peer.Clone()
		config.ServerName = "127.0.0.1"
		return tls.Client(conn, config), nil // its handshake is a part of the first read
	})
	stranger, plain := watchFrom(t, own, new(tls.Dialer).DialContext), watchAsServer(t, nil)
	for _, w := range []*watcher{good, late, plain} {
		w.Watch("a-1", s.address)
	}
	good.expect(t, "a-1", Confirmed)
	late.expect(t, "a-1", Confirmed)
	good.quiet(t, 1200*time.Millisecond)
	stranger.Watch("a-1", s.address) // late, because its pauses grow
	stranger.only(t, Silent, 50*time.Millisecond)
	plain.only(t, Silent, 50*time.Millisecond)
	s.Close()
	for _, w := range []*watcher{good, late, plain} {
		w.expect(t, "a-1", Refused)
	}
	for !errors.Is(stranger.expect(t, "a-1", Silent).Err, ErrSelf) {
	}
}

// TestHostileClients: thousands of connections of clients that mean harm, a quarter of each kind, cost a
// server neither memory nor goroutines, and soon after them it answers a peer again.
func TestHostileClients(t *testing.T) {
	server, peer := certified(t)
	garbage := make([]byte, 16<<10)
	for name, tc := range map[string]struct {
		tls bool
		act func(net.Conn)
	}{
		"never reads":          {false, func(net.Conn) {}},
		"sends garbage":        {false, func(conn net.Conn) { conn.Write(garbage) }},
		"stalls the handshake": {true, func(net.Conn) {}},
		"breaks the handshake": {true, func(conn net.Conn) { conn.Write(garbage) }},
	} {
		t.Run(name, func(t *testing.T) {
			l, dial := listen(t), Dialer(nil)
			if tc.tls {
				l, dial = tls.NewListener(l, server), (&tls.Dialer{Config: peer}).DialContext
			}
			s := serve(t, l, "a-1")
			before := memory()
			var conns []net.Conn
			for range min(fixture.Size(600, 2500), openFiles()/2) {
				conn, err := net.Dial("tcp", s.address)
				must(t, err)
				conn.SetDeadline(time.Now().Add(20 * time.Millisecond))
				tc.act(conn)
				conns = append(conns, conn)
				// Some more may have nothing left to do but to return.
				if n := s.running.Load(); n > 2*maxAnswering {
					t.Fatalf("%d goroutines", n)
				}
			}
			w := watch(t, dial)
			began := time.Now()
			w.Watch("a-1", s.address)
			w.expect(t, "a-1", Confirmed)
			took := time.Since(began)
			after := memory()
			s.mu.Lock()
			kept, answering := len(s.kept), len(s.answering)
			s.mu.Unlock()
			t.Logf("confirmed %v after %d connections; %d kept, %d being answered", took, len(conns), kept, answering)
			if took > fixture.Size(10*time.Second, 2*time.Second) || kept > maxKept || answering > maxAnswering {
				t.Error("more than is allowed")
			}
			// The client's own side of a connection counts too: less than 1,000 bytes of heap each.
			if grown := after.heap - before.heap - 1000*int64(len(conns)); grown > 1<<20 {
				t.Errorf("%d bytes of heap are left", grown)
			}
			for _, conn := range conns {
				conn.(*net.TCPConn).SetLinger(0) // no thousands of ports that wait
				conn.Close()
			}
		})
	}
}
