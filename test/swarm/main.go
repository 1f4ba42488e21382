// Command swarm runs the agents of many nodes in one process, against a real API server, for tests of a change's
// engine, journal and gates at scale. `theseus-lab swarm` builds it and starts it next to a control plane; it is not
// part of the product.
//
// The agents are the product's own (internal/node/agent): their tasks, reports and plans of paths go through the API
// server, with the credentials of their pods. --about prints what a model does instead of a node.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/theseus-cni/theseus/internal/safeio/printable"
)

// simulated says what of a cluster is a model here.
const simulated = `simulated: kubelets, runtimes and CNI plugins (pods are marked as running, with addresses), the work of the agents' verbs,
and probes with their answers. Each takes as long as such things took in the lab, by the table of internal/step/estimate.`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := start(ctx, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "error: %s\nhint: theseus-lab swarm starts this program, and --help lists its flags\n",
			printable.Line(err.Error()))
		os.Exit(1)
	}
}

func start(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("swarm", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig file of an administrator")
	nodes := flags.Int("nodes", 20, "number of nodes")
	target := flags.String("target-cidr", "",
		"range of the addresses that the new network gives to pods; empty: that of the node")
	lease := flags.Duration("lease-every", 10*time.Second, "how often a node renews its lease")
	scale := flags.Float64("times", 1, "what the model takes, as a multiple of what the lab took")
	about := flags.Bool("about", false, "say what is a model, and end")
	var faults faults
	flags.Var(&faults, "fault", faultUsage)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *about {
		fmt.Println(simulated)
		return nil
	}
	if *lease <= 0 {
		return fmt.Errorf("--lease-every %s is not positive", *lease)
	}
	if *nodes < 1 || *nodes > maxNodes {
		return fmt.Errorf("--nodes %d is not between 1 and %d", *nodes, maxNodes)
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return fmt.Errorf("reach the API: %w", err)
	}
	s, err := newSwarm(config, *nodes, *target, times(*scale), faults)
	if err != nil {
		return err
	}
	s.leaseEvery = *lease
	return s.run(ctx)
}

// swarm is all nodes of the model.
type swarm struct {
	config    *rest.Config
	client    kubernetes.Interface
	times     times
	machines  map[string]*machine
	addresses addresses
	log       *slog.Logger

	leaseEvery time.Duration // between two renewals of a node's lease
}

func newSwarm(config *rest.Config, nodes int, target string, times times, faults faults) (*swarm, error) {
	config.UserAgent, config.QPS, config.Burst = "swarm", 1000, 2000 // one client for the kubelets of all nodes
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	s := &swarm{config: config, client: client, times: times, machines: map[string]*machine{},
		log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	for i := range nodes {
		m, err := newMachine(s, i, target)
		if err != nil {
			return nil, err
		}
		s.machines[m.name] = m
	}
	for _, fault := range faults {
		m := s.machines[fault.node]
		if m == nil {
			return nil, fmt.Errorf("--fault %s: there is no node %s", fault, fault.node)
		}
		m.faults = append(m.faults, fault)
	}
	return s, nil
}

// run registers the nodes and plays them until the context ends.
func (s *swarm) run(ctx context.Context) error {
	begun := time.Now()
	if err := s.register(ctx); err != nil {
		return err
	}
	if err := s.follow(ctx); err != nil {
		return err
	}
	fmt.Printf("%d nodes are registered after %s\n", len(s.machines), time.Since(begun).Round(time.Second/10))
	<-ctx.Done()
	return nil
}

// trouble logs an error that is no consequence of the end.
func (s *swarm) trouble(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled) {
		s.log.Warn(what, "error", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
}
