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

// refuses reports whether the error of a dialer shows that the address refuses connections. A
// server of names that refuses shows nothing about the address.
func refuses(err error) bool {
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return false
	}
	return slices.ContainsFunc(refusals(), func(refusal error) bool { return errors.Is(err, refusal) })
}

// elsewhere returns an error for an address that means the machine of the watcher, whatever machine it is
// read on.
func elsewhere(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil // a user's dialer may have addresses of its own kind
	}
	ip, _ := netip.ParseAddr(host)
	if host == "" || ip.IsValid() && ip.Unmap().IsUnspecified() {
		return fmt.Errorf("address %q is no address of a peer: it names no machine", address)
	}
	return nil
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
	dialer := net.Dialer{Timeout: dialTime / time.Duration(len(ips))}
	var refused, failed error
	for _, ip := range ips {
		conn, err := dialer.DialContext(ctx, network, net.JoinHostPort(ip, port))
		switch {
		case err == nil:
			return conn, nil
		case refuses(err):
			refused = err
		default:
			failed = err
		}
	}
	return nil, cmp.Or(failed, refused)
}
