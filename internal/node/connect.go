package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/step"
)

const (
	// connectFor is how long a connection may take: the kernel sends its first packet again after one second.
	connectFor = 2 * time.Second
	// connectPause is the time between two connections, and connectLook that between two looks at one.
	connectPause = 50 * time.Millisecond
	connectLook  = 100 * time.Millisecond
)

// connect opens connections from pods of this node, one after the other.
func (n *Node) connect(ctx context.Context, args step.ConnectArgs) (Answer, error) {
	for _, pair := range args.Pairs {
		if pair.Node != n.Name {
			return Answer{}, fmt.Errorf("%s is a pod of the node %s, but this agent runs on "+
				"%s", pair.From, pair.Node, n.Name)
		}
	}
	all, err := n.sandboxes()
	if err != nil {
		return Answer{}, err
	}
	result := step.ConnectResult{Tries: make([]step.Try, len(args.Pairs))}
	reached := 0
	for i, pair := range args.Pairs {
		if i > 0 {
			if err := outage.Sleep(ctx, connectPause); err != nil {
				return Answer{}, err
			}
		}
		if result.Tries[i], err = n.try(ctx, all, pair); err != nil {
			return Answer{}, err
		}
		if result.Tries[i].Reached() {
			reached++
		}
	}
	return answer(false, fmt.Sprintf("%d of %s reached the other pod", reached,
		cluster.Count(len(args.Pairs), "connection")), result)
}

// try opens one connection.
func (n *Node) try(ctx context.Context, all []sandbox, pair step.Pair) (step.Try, error) {
	in, err := n.spaceOf(all, pair.From)
	if err != nil {
		return step.Try{Outcome: step.TryUntried, Why: err.Error()}, nil
	}
	if in == nil {
		return step.Try{Outcome: step.TryGone, Why: pair.From.String() + " has no network namespace on " + n.Name}, nil
	}
	defer in.close()
	to, err := netip.ParseAddr(pair.To.Address)
	if err != nil {
		return step.Try{}, err
	}
	return in.connect(ctx, netip.AddrPortFrom(to, uint16(pair.Port)))
}

// spaceOf enters the network namespace of a pod; nil if this node has none, in which the pod's address is.
func (n *Node) spaceOf(all []sandbox, pod step.Pod) (*space, error) {
	for _, s := range all {
		if s.arg("K8S_POD_NAMESPACE") != pod.Namespace || s.arg("K8S_POD_NAME") != pod.Name ||
			cmp.Or(s.arg("K8S_POD_UID"), pod.UID) != pod.UID || s.NetNS == "" { // old runtimes tell no UID
			continue
		}
		in, err := n.enter(s.NetNS)
		if errors.Is(err, errNoSpace) {
			continue
		}
		if err != nil {
			return nil, err
		}
		has, err := in.has(pod.Address)
		if has && err == nil {
			return in, nil
		}
		in.close()
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// has reports whether an address is in the namespace.
func (s *space) has(address string) (bool, error) {
	all, err := listed(func() ([]netlink.Addr, error) { return s.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return false, fmt.Errorf("list its addresses: %w", err)
	}
	for _, one := range all {
		if one.IP.String() == address {
			return true, nil
		}
	}
	return false, nil
}

// connect opens a connection from the namespace, and closes it. Only the end of ctx is an error.
func (s *space) connect(ctx context.Context, to netip.AddrPort) (step.Try, error) {
	var fd int
	if err := s.do(func() (err error) { // the socket stays in the namespace
		family := unix.AF_INET
		if to.Addr().Is6() {
			family = unix.AF_INET6
		}
		fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
		return err
	}); err != nil {
		return step.Try{Outcome: step.TryUntried, Why: err.Error()}, nil
	}
	defer unix.Close(fd)
	var address unix.Sockaddr = &unix.SockaddrInet4{Port: int(to.Port())}
	if to.Addr().Is6() {
		address = &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	} else {
		address.(*unix.SockaddrInet4).Addr = to.Addr().As4()
	}
	err := unix.Connect(fd, address)
	if errors.Is(err, unix.EINPROGRESS) {
		err = answered(ctx, fd)
	}
	if ctx.Err() != nil {
		return step.Try{}, ctx.Err()
	}
	return outcome(fd, err), nil
}

// answered waits for the end of the connecting.
func answered(ctx context.Context, fd int) error {
	for end := time.Now().Add(connectFor); ; {
		waits := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		late := !time.Now().Before(end)
		ready, err := unix.Poll(waits, int(connectLook.Milliseconds()))
		switch {
		case err != nil && !errors.Is(err, unix.EINTR):
			return err
		case ready > 0:
			code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
			if err == nil && code != 0 {
				err = unix.Errno(code)
			}
			return err
		case late:
			return unix.ETIMEDOUT
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
}

// outcome says what an error of connecting means.
func outcome(fd int, err error) step.Try {
	switch {
	case err == nil:
		return step.Try{Outcome: step.TryOpened}
	case errors.Is(err, unix.ETIMEDOUT):
		return step.Try{Outcome: step.TrySilent, Why: fmt.Sprintf("no answer within %s", connectFor)}
	case errors.Is(err, unix.ECONNREFUSED):
		// A reset is a segment of TCP. An ICMP message, as rules that reject send it, is none.
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil && info.Segs_in > 0 {
			return step.Try{Outcome: step.TryRefused}
		}
		return step.Try{Outcome: step.TryRejected}
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EACCES),
		errors.Is(err, unix.EPERM):
		return step.Try{Outcome: step.TryRejected, Why: err.Error()}
	}
	return step.Try{Outcome: step.TryUntried, Why: err.Error()}
}
