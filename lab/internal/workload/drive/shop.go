package drive

import (
	"context"
	"fmt"
	"net"
	"net/netip"
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
// as below. Everything is addressed as programs address it, by Service names and member names.
// ctx bounds what looks for members that left.
func Shop(ctx context.Context, resolvConf string, rate float64) (*Driver, error) {
	names, err := systemResolver(resolvConf)
	if err != nil {
		return nil, err
	}
	to := func(host, port string) client { return client{resolver: names, host: host + zone, port: port} }

	web := newPool(to("web", httpPort), 12)
	stream := newStreams(to("stream", streamPort), 4)
	var set []client
	for i := range Members {
		set = append(set, to(fmt.Sprintf("db-%d.db", i), httpPort))
	}
	db := newMembers(set)

	d := &Driver{close: func() {
		web.close()
		stream.close()
	}}
	share := func(percent float64) float64 { return rate * percent / 100 }
	d.add("http-new", share(16), 3, patience, to("web", httpPort).newConnection)
	d.add("http-reused", share(32), 3, patience, web.reused)
	d.add("set-member", share(12), 3, patience, db.ask)
	d.add("tcp-stream", share(14), 3, patience, stream.message)
	d.add("udp", share(12), 3, patience, to("udp", udpPort).datagram)
	d.add("dns", share(8), 3, patience, func(ctx context.Context) (string, error) {
		_, err := names.lookup(ctx, "web"+zone)
		return names.server, err
	})
	d.add("allowed-tcp", share(3), 3, patience, to("vault", httpPort).newConnection)
	d.add("allowed-udp", share(3), 3, patience, to("vault", udpPort).datagram)
	go db.watch(ctx)
	return d, nil
}

// Intruder sends what a NetworkPolicy denies; it counts answers as failures. It first waits until the
// name of its victim can be looked up.
func Intruder(ctx context.Context, resolvConf string) (*Driver, error) {
	names, err := systemResolver(resolvConf)
	if err != nil {
		return nil, err
	}
	const (
		silence = 500 * time.Millisecond // allowed answers take a few
		steady  = 10
	)
	host := "vault" + zone
	addr, err := eventually(ctx, names, host)
	if err != nil {
		return nil, err
	}
	victim := &denied{
		tcp: net.JoinHostPort(addr.String(), httpPort),
		udp: net.JoinHostPort(addr.String(), udpPort),
	}
	d := &Driver{close: victim.close}
	d.add("denied-tcp", 20, steady, silence, victim.connect)
	d.add("denied-udp", 20, steady, silence, victim.datagram)
	d.add("denied-udp-flow", 2, steady, silence, victim.again)
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
