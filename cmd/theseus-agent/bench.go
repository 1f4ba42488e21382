package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"strconv"

	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/node"
	"github.com/theseus-cni/theseus/internal/proof/bench"
	"github.com/theseus-cni/theseus/internal/proof/load"
	"github.com/theseus-cni/theseus/internal/step"
)

// runBench is a container of a benchmark's pods.
func runBench(ctx context.Context, log *slog.Logger, args []string) error {
	part := ""
	if len(args) > 0 {
		part, args = args[0], args[1:]
	}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	host := flags.Bool("host", false, "serve on the node's own address, and its kernel's counters too")
	address := flags.String("address", os.Getenv("HOST_IP"), "the node's own address")
	within := flags.Duration("within", 0, "end after this time, even if clients still use it")
	if err := flags.Parse(args); err != nil {
		return usage{err}
	}
	if *within <= 0 {
		return usage{errors.New("--within is missing: load has an end")}
	}
	ctx, cancel := context.WithTimeout(ctx, *within)
	defer cancel()
	worker := net.JoinHostPort("127.0.0.1", strconv.Itoa(manifest.PortWork))
	switch part {
	case "serve":
		return serveBench(ctx, log, *host, *address)
	case "work":
		return load.Work(ctx, worker)
	case "conduct":
		var plan bench.Plan
		if err := json.Unmarshal([]byte(os.Getenv("THESEUS_BENCH")), &plan); err != nil {
			return usage{fmt.Errorf("the plan of THESEUS_BENCH: %w", err)}
		}
		out := json.NewEncoder(os.Stdout)
		var failed error
		load.Conduct(ctx, plan, worker, func(line bench.Line) { failed = errors.Join(failed, out.Encode(line)) })
		return failed
	}
	return usage{fmt.Errorf("a benchmark has no part %q", part)}
}

func serveBench(ctx context.Context, log *slog.Logger, host bool, address string) error {
	ports := load.Ports{Echo: manifest.PortUDP, Accept: manifest.PortTCP, Sink: manifest.PortSink,
		HTTP: manifest.PortHTTP}
	if !host {
		log.Info("the responder of a benchmark starts")
		return load.Serve(ctx, "", ports, nil)
	}
	if address == "" {
		return usage{errors.New("the node's address is missing (set HOST_IP or --address)")}
	}
	for _, port := range []*int{&ports.Echo, &ports.Accept, &ports.Sink, &ports.HTTP} {
		*port += manifest.HostOffset
	}
	log.Info("the responder of a benchmark starts", "address", address)
	var readings []step.Reading
	if text := os.Getenv(manifest.BenchReadings); text != "" {
		if err := json.Unmarshal([]byte(text), &readings); err != nil {
			return usage{fmt.Errorf("the readings of %s: %w", manifest.BenchReadings, err)}
		}
	}
	return load.Serve(ctx, address, ports,
		kernel{&node.Node{Sys: "/proc/sys"}, address, os.Getenv("BENCH_ID"), readings})
}

// kernel is that of the node that has an address, and id is the benchmark's. Readings are what programs of the network
// serve.
type kernel struct {
	*node.Node
	address, id string
	readings    []step.Reading
}

// Counters implements load.Kernel: it adds how long the processors have worked, and the counters of the network's
// programs. Those that do not answer have none.
func (k kernel) Counters() (map[string]int64, error) {
	all, err := k.Node.Counters()
	if err != nil {
		return nil, err
	}
	busy, err := k.Busy()
	if err == nil {
		all[bench.Busy] = busy.Microseconds()
	}
	own, _ := node.Served(context.Background(), k.readings) // it takes two seconds for each at most
	maps.Copy(all, own.Counters())
	return all, nil
}

// Limits implements load.Kernel.
func (k kernel) Limits() (limits bench.Limits, err error) {
	limits.Conntrack, limits.ConntrackMost, err = k.Conntrack()
	if boot := k.Boot(); boot != "" { // anyone who reaches the port gets it: two nodes can be compared, no more
		limits.Boot = fmt.Sprintf("%x", sha256.Sum256([]byte(k.id+" "+boot)))
	}
	limits.Link = node.LinkSpeed("/sys/class/net", k.address)
	if busy, err := k.Busy(); err == nil {
		limits.Busy, limits.Processors = busy.Microseconds(), k.Processors()
	}
	return limits, err
}
