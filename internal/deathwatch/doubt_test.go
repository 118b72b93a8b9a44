package deathwatch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A side is what stands on the watcher's side of the network, such as a firewall. It lets connections stand that were
// made before, and routes new ones.
type side struct {
	mu    sync.Mutex
	route func(address string) (to string) // empty: refused; nil: all go where they should
	made  map[string][]net.Conn            // by the address that was dialled
}

var errRefused = &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}

func (s *side) dial(ctx context.Context, network, address string) (net.Conn, error) {
	s.mu.Lock()
	to := address
	if s.route != nil {
		to = s.route(address)
	}
	s.mu.Unlock()
	if to == "" {
		return nil, errRefused
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, to)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.made == nil {
			s.made = map[string][]net.Conn{}
		}
		s.made[address] = append(s.made[address], conn)
	}
	return conn, err
}

// set changes the routes.
func (s *side) set(route func(string) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.route = route
}

// refuse refuses all connections that the watcher makes from now on, except for those to some addresses.
func (s *side) refuse(except ...string) {
	s.set(func(address string) string {
		for _, open := range except {
			if address == open {
				return address
			}
		}
		return ""
	})
}

// cut ends the connections to an address.
func (s *side) cut(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.made[address] {
		_ = conn.Close()
	}
}

// expectDoubt waits for a refusal that proves nothing because of that. Nothing but Silent may be reported, now and for
// some time after.
func (w *watcher) expectDoubt(t testing.TB, peer string, doubt error) {
	t.Helper()
	for !errors.Is(w.expect(t, peer, Silent).Err, doubt) { // a dial may fail otherwise, while the connection is closed
	}
	w.only(t, Silent, 300*time.Millisecond)
}

// TestRefusedByOnesOwnMachine: the watcher's machine, or a proxy on it, refuses all connections. Nothing is proven
// until the watcher reaches its own server again.
func TestRefusedByOnesOwnMachine(t *testing.T) {
	t.Parallel()
	var machine side
	peer := serve(t, listen(t), "a-1")
	w := watchAsServer(t, machine.dial)
	w.Watch("a-1", peer.address)
	w.expect(t, "a-1", Confirmed)
	machine.refuse()
	machine.cut(peer.address)
	w.expectDoubt(t, "a-1", ErrSelf)
	machine.set(nil)
	w.expect(t, "a-1", Confirmed)
	peer.Close()
	w.expect(t, "a-1", Refused)
}

// TestRefusedWithoutAServer: a watcher that has no server of its own, or whose server has failed, does not know
// whether its machine refuses all connections. It believes no refusal.
func TestRefusedWithoutAServer(t *testing.T) {
	t.Parallel()
	for name, w := range map[string]*watcher{"it has none": watch(t, nil), "it has failed": watchAsServer(t, nil)} {
		t.Run(name, func(t *testing.T) {
			peer := serve(t, listen(t), "a-1")
			w.Watch("a-1", peer.address)
			w.expect(t, "a-1", Confirmed)
			w.Deaf()
			peer.Close()
			w.expectDoubt(t, "a-1", ErrSelf)
		})
	}
}

// TestRefusedByASidecar: the watcher's sidecar refuses all connections that leave the machine, or connects them to
// somebody else. The watcher reaches itself all the while, and its connection to another peer stands. Nothing is proven
// until a dial to that peer is answered as that peer.
func TestRefusedByASidecar(t *testing.T) {
	t.Parallel()
	for name, elsewhere := range map[string]string{"all are refused": "", "somebody else answers": serve(t, listen(t), "x-1").address} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sidecar side
			self, a, b := serve(t, listen(t), "w-1"), serve(t, listen(t), "a-1"), serve(t, listen(t), "b-1")
			w := watchFrom(t, self, sidecar.dial)
			for _, s := range []*served{a, b} {
				w.Watch(s.incarnation, s.address)
				w.expect(t, s.incarnation, Confirmed)
			}
			sidecar.set(func(address string) string {
				return map[string]string{self.address: self.address, b.address: elsewhere}[address]
			})
			sidecar.cut(a.address)
			w.expectDoubt(t, "a-1", errOther)
			sidecar.set(nil)
			w.expect(t, "a-1", Confirmed)
			a.Close()
			w.expect(t, "a-1", Refused)
		})
	}
}

// TestRefusedForAMoment: the watcher's machine refuses one dial to a living peer, and no other. That proves nothing, whether
// there is another peer or not.
func TestRefusedForAMoment(t *testing.T) {
	t.Parallel()
	for _, peers := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d peers", peers), func(t *testing.T) {
			var machine side
			self, a, b := serve(t, listen(t), "w-1"), serve(t, listen(t), "a-1"), serve(t, listen(t), "b-1")
			w := watchFrom(t, self, machine.dial)
			for _, s := range []*served{a, b}[:peers] {
				w.Watch(s.incarnation, s.address)
				w.expect(t, s.incarnation, Confirmed)
			}
			refused := false
			machine.set(func(address string) string {
				if address == a.address && !refused {
					refused = true
					return ""
				}
				return address
			})
			machine.cut(a.address)
			w.expect(t, "a-1", Confirmed)
			if !refused {
				t.Error("no dial was refused")
			}
		})
	}
}

// TestRefusedByTheOnlyPeer: there is no other peer to ask. A refusal proves nothing as long as the peer's own connection
// to the watcher stands, and everything when that connection ends.
func TestRefusedByTheOnlyPeer(t *testing.T) {
	t.Parallel()
	var firewall side
	self, a := serve(t, listen(t), "w-1"), serve(t, listen(t), "a-1")
	w, back := watchFrom(t, self, firewall.dial), watchFrom(t, a, nil)
	w.Watch("a-1", a.address)
	w.expect(t, "a-1", Confirmed)
	back.Watch("w-1", self.address)
	back.expect(t, "w-1", Confirmed)
	firewall.refuse(self.address)
	firewall.cut(a.address)
	w.expectDoubt(t, "a-1", errVisits)
	firewall.set(nil)
	w.expect(t, "a-1", Confirmed)
	a.Close() // the process dies: its connections end
	back.Close()
	w.expect(t, "a-1", Refused)
}

// TestConnectionOfAStranger: somebody on another machine has connected to the watcher, and says nothing. That is no
// sign that the only peer lives.
func TestConnectionOfAStranger(t *testing.T) {
	self, a := serve(t, listen(t), "w-1"), serve(t, listen(t), "a-1")
	w, back := watchFrom(t, self, nil), watchFrom(t, a, nil)
	stranger, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).Dial("tcp", self.address)
	if err != nil {
		t.Skipf("this machine has no second address on its loopback: %v", err)
	}
	defer stranger.Close()
	if as, err := readAnswer(stranger); as != "w-1" {
		t.Fatalf("answer %q, %v", as, err)
	}
	w.Watch("a-1", a.address)
	w.expect(t, "a-1", Confirmed)
	back.Watch("w-1", self.address)
	back.expect(t, "w-1", Confirmed)
	back.Close()
	back.wg.Wait()
	a.Close()
	for r := w.next(t); r.Outcome != Refused; r = w.next(t) {
		if errors.Is(r.Err, errVisits) {
			t.Fatalf("report %+v", r)
		}
	}
}

// TestWhoIsAsked: a peer that has a connection is asked first, and the peer itself never.
func TestWhoIsAsked(t *testing.T) {
	w := watch(t, nil)
	w.mu.Lock()
	w.links = map[string]*link{"a-1": {peer: "a-1", conn: empty{}}, "b-1": {peer: "b-1"}, "c-1": {peer: "c-1"}, "d-1": {peer: "d-1", conn: empty{}}}
	w.mu.Unlock()
	defer func() { w.links = nil }()
	for range 100 {
		if o := w.another(w.links["a-1"]); o.peer != "d-1" {
			t.Fatalf("%s is asked", o.peer)
		}
	}
	delete(w.links, "d-1")
	asked := map[string]bool{}
	for range 100 {
		asked[w.another(w.links["a-1"]).peer] = true
	}
	if len(asked) != 2 || asked["a-1"] {
		t.Errorf("asked are %v", asked)
	}
	w.links = map[string]*link{"a-1": w.links["a-1"]}
	if o := w.another(w.links["a-1"]); o != nil {
		t.Errorf("%s is asked", o.peer)
	}
}

// A visitor is a connection from a host.
type visitor struct {
	net.Conn
	host string
}

func (v visitor) RemoteAddr() net.Addr { return hostAddr(v.host) }

type hostAddr string

func (hostAddr) Network() string  { return "tcp" }
func (a hostAddr) String() string { return net.JoinHostPort(string(a), "1") }

// TestStandingConnections: which kept connections show that somebody at a host lives.
func TestStandingConnections(t *testing.T) {
	const peer, other = "10.0.0.7", "10.0.0.8"
	type visit struct {
		host string
		does func(net.Conn)
	}
	stays := func(net.Conn) {}
	ends := func(conn net.Conn) { conn.Close() }
	sends := func(conn net.Conn) { conn.Write([]byte("x")) }
	endsSoon := func(conn net.Conn) {
		time.Sleep(endTime / 2)
		conn.Close()
	}
	for name, tc := range map[string]struct {
		visits []visit
		want   bool
	}{
		"none":                         {nil, false},
		"of the peer":                  {[]visit{{peer, stays}}, true},
		"of the peer, at its end":      {[]visit{{peer, ends}}, false},
		"of the peer, about to end":    {[]visit{{peer, endsSoon}}, false},
		"of the peer, which sends":     {[]visit{{peer, sends}}, true},
		"two of the peer":              {[]visit{{peer, ends}, {peer, stays}}, true},
		"at its end, and of a third":   {[]visit{{other, stays}, {peer, ends}}, false},
		"its address is translated":    {[]visit{{other, ends}, {other, stays}}, true},
		"translated, and at their end": {[]visit{{other, ends}, {other, ends}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newScript()
				s := serve(t, l, "w-1")
				for _, v := range tc.visits {
					here, there := net.Pipe()
					defer here.Close()
					l.next <- func() (net.Conn, error) { return visitor{there, v.host}, nil }
					if as, err := readAnswer(here); as != "w-1" {
						t.Fatalf("answer %q, %v", as, err)
					}
					synctest.Wait()
					s.wg.Go(func() { v.does(here) })
				}
				for range 2 { // what one look has found, the next one finds too
					if found := s.hears(peer); found != tc.want {
						t.Errorf("stands: %t", found)
					}
				}
			})
		})
	}
}
