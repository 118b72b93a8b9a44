package deathwatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"
)

// Dialling, and what the errors of a dial show.
//
// Called by a link: elsewhere before a dial, dialEach for the dial, and refuses after it.
//
// Invariant: a refusal is never reported for an address that names no machine, for a name that
// cannot be looked up, or for a name if one of its addresses has not refused.

var errNoAddress = errors.New("the name has no address")

// refuses reports whether the error of a dialer shows that the address refuses connections. A
// name server that refuses shows nothing about the address.
func refuses(err error) (refused bool) {
	_ = guarded(func() error { // an error of a user's dialer may panic when it is asked
		_, name := errors.AsType[*net.DNSError](err)
		refused = !name && slices.ContainsFunc(refusals(), func(refusal error) bool { return errors.Is(err, refusal) })
		return nil
	})
	return refused
}

// elsewhere returns an error for an address that names no machine: a dial to it would reach the
// watcher's own machine.
func elsewhere(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil // a user's dialer may have addresses of its own kind
	}
	if !NamesMachine(host) {
		return fmt.Errorf("address %q names no machine", address)
	}
	return nil
}

// NamesMachine reports whether the host of an address names a machine: it is not empty, and not the unspecified
// address, as in ":7946" and "0.0.0.0:7946".
func NamesMachine(host string) bool {
	ip, _ := netip.ParseAddr(host)
	return host != "" && !(ip.IsValid() && ip.Unmap().IsUnspecified())
}

// dialEach is the default Dialer. It differs from net.Dialer for a name with several addresses: its
// error is a refusal only if every address has refused. The error of net.Dialer is that of the first
// address, which may be a refusal although the peer listens at another one and is silent.
func dialEach(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: dialTime / time.Duration(max(len(ips), 1))}
	return dialAll(ctx, dialer.DialContext, network, ips, port)
}

// dialAll dials one address after the other.
func dialAll(ctx context.Context, dial Dialer, network string, ips []string, port string) (net.Conn, error) {
	var refused, failed error
	for _, ip := range ips {
		address := net.JoinHostPort(ip, port)
		if failed = cmp.Or(failed, elsewhere(address)); failed != nil {
			continue
		}
		conn, err := dial(ctx, network, address)
		switch {
		case err == nil:
			return conn, nil
		case refuses(err):
			refused = err
		default:
			failed = err
		}
	}
	return nil, cmp.Or(failed, refused, errNoAddress)
}
