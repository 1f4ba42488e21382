package drive

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"
)

// zone is the end of the names of the workload's Services.
const zone = ".shop.svc.cluster.local"

// Ports of the workload's servers.
const (
	httpPort   = "8080"
	udpPort    = "8082"
	streamPort = "9000"
)

// Members is how many members the workload's set has.
const Members = 3

// Shop sends what the workload's clients send: rate requests a second in all, split among the kinds
// as below. Everything is addressed as programs address it, by Service names and member names. From outside the
// pods, on a node's own network, the kinds begin with "host-", and what policy allows to pods alone is left out.
// ctx bounds what looks for members that left.
func Shop(ctx context.Context, resolvConf string, rate float64, outside bool) (*Driver, error) {
	names, err := systemResolver(resolvConf)
	if err != nil {
		return nil, err
	}
	to := func(host, port string) client {
		return client{resolver: names, host: host + zone, port: port, memory: &memory{}}
	}

	web := newPool(to("web", httpPort), 12)
	stream := newStreams(to("stream", streamPort), 4)
	var set []client
	for i := range Members {
		member := to(fmt.Sprintf("db-%d.db", i), httpPort)
		member.memory = nil // another address whenever the member is replaced
		set = append(set, member)
	}
	db := newMembers(set)

	d := &Driver{close: func() {
		web.close()
		stream.close()
	}}
	expect := func(kind string, percent float64, send request) {
		if outside {
			kind = "host-" + kind
		}
		d.expect(kind, rate*percent/100, send)
	}
	expect("http-new", 16, to("web", httpPort).newConnection)
	expect("http-reused", 32, web.reused)
	expect("set-member", 12, db.ask)
	expect("tcp-stream", 14, stream.message)
	expect("udp", 12, to("udp", udpPort).datagram)
	expect("dns", 8, func(ctx context.Context) (string, error) {
		_, err := names.lookup(ctx, "web"+zone)
		return names.server, err
	})
	if !outside {
		expect("allowed-tcp", 3, to("vault", httpPort).newConnection)
		expect("allowed-udp", 3, to("vault", udpPort).datagram)
	}
	go db.watch(ctx)
	return d, nil
}

// World adds requests to a server outside of the cluster, at HOST:PORT by HTTP and UDP: so many a second of each kind.
func (d *Driver) World(address string, rate float64) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	// Its address never changes.
	known := &memory{addr: at.Addr(), until: time.Now().AddDate(1, 0, 0)}
	server := client{resolver: resolver{ports: new(ports)}, host: at.Addr().String(),
		port: strconv.Itoa(int(at.Port())), memory: known}
	kept := newPool(server, 4)
	before := d.close
	d.close = func() {
		if before != nil {
			before()
		}
		kept.close()
	}
	d.expect("outside-tcp-new", rate, server.newConnection)
	d.expect("outside-tcp-kept", min(rate, 8), kept.reused)
	d.expect("outside-udp-new", rate, server.datagram)
	return nil
}

// Peer sends datagrams to one address, HOST:PORT, so many a second.
func Peer(address string, rate float64) (*Driver, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	known := &memory{addr: at.Addr(), until: time.Now().AddDate(1, 0, 0)} // its address never changes
	d := &Driver{}
	d.expect(KindPeer, rate, client{resolver: resolver{ports: new(ports)}, host: at.Addr().String(),
		port: strconv.Itoa(int(at.Port())), memory: known}.datagram)
	return d, nil
}

// KindPeer is what Peer calls its requests.
const KindPeer = "peer-udp"

// Intruder sends what a NetworkPolicy denies; it counts answers as failures. It first waits until the
// name of its victim can be looked up.
func Intruder(ctx context.Context, resolvConf string) (*Driver, error) {
	names, err := systemResolver(resolvConf)
	if err != nil {
		return nil, err
	}
	host := "vault" + zone
	addr, err := eventually(ctx, names, host)
	if err != nil {
		return nil, err
	}
	victim, err := newDenied(ctx, net.JoinHostPort(addr.String(), httpPort), net.JoinHostPort(addr.String(), udpPort))
	if err != nil {
		return nil, err
	}
	d := &Driver{close: victim.close}
	d.deny("denied-tcp", 20, victim.connect)
	d.deny("denied-udp", 20, victim.datagram)
	d.deny("denied-udp-flow", 20, victim.again)
	return d, nil
}

// eventually looks a name up until it is found or ctx ends.
func eventually(ctx context.Context, names resolver, host string) (netip.Addr, error) {
	for {
		attempt, cancel := context.WithTimeout(ctx, patience)
		addr, err := names.lookup(attempt, host)
		cancel()
		if err == nil {
			return addr, nil
		}
		if !wait(ctx, recheck) {
			return netip.Addr{}, err
		}
	}
}
