// Command theseus-agent is the part of Theseus that runs on nodes. `run` (the default) is the agent of a node; `probe`
// is a prober, in a probe pod or for a node's host; `answer` is the second responder in the same pod. `stand-in` takes
// the place of users' programs in a copy of a cluster on which a change is rehearsed. `introduce` makes pods of one
// network known to the agents of another. `bench` is a container of a benchmark. `new-pod` is a container of a new pod,
// which a guard makes while others change the network.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/theseus-cni/theseus/internal/cli/version"
	"github.com/theseus-cni/theseus/internal/cluster/apiserver"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/mirror/standin"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/node"
	"github.com/theseus-cni/theseus/internal/node/agent"
	"github.com/theseus-cni/theseus/internal/node/introduce"
	"github.com/theseus-cni/theseus/internal/proof/probe"
	"github.com/theseus-cni/theseus/internal/safeio/printable"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := start(ctx, log, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "error: %s\nhint: %s\n", printable.Line(err.Error()), printable.Line(hint(err)))
		os.Exit(1)
	}
}

// usage is an error in the command line.
type usage struct{ error }

func hint(err error) string {
	if _, wrong := errors.AsType[usage](err); wrong {
		return "theseus-agent run [--kubeconfig FILE] | theseus-agent probe|answer --network old|new|host | " +
			"theseus-agent stand-in --tcp PORT,... --udp PORT,... | theseus-agent introduce --to NETWORK --pods " +
			"CIDR,... | theseus-agent bench serve|work|conduct | theseus-agent new-pod answer|try | " +
			"theseus-agent --version"
	}
	return "the agent is started by its DaemonSet; `kubectl -n theseus-system describe pods` shows how"
}

func start(ctx context.Context, log *slog.Logger, args []string) error {
	command := "run"
	if len(args) > 0 {
		command, args = args[0], args[1:]
	}
	switch command {
	case "run":
		return runAgent(ctx, log, args)
	case "probe":
		return runProbe(ctx, log, args)
	case "answer":
		return runAnswer(ctx, log, args)
	case "stand-in":
		return runStandIn(ctx, log, args)
	case "introduce":
		return runIntroduce(ctx, log, args)
	case "bench":
		return runBench(ctx, log, args)
	case "new-pod":
		return runNewPod(ctx, log, args)
	case "--version", "-version", "version":
		fmt.Println(version.Read().Line("theseus-agent"))
		return nil
	}
	return usage{fmt.Errorf("unknown command %q", command)}
}

func runAgent(ctx context.Context, log *slog.Logger, args []string) error {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig file; empty means the pod's own credentials")
	name := flags.String("node", os.Getenv("NODE_NAME"), "the node's name")
	root := flags.String("root", manifest.HostRoot, "where the node's root filesystem is mounted")
	servers := flags.String("api-servers", os.Getenv(manifest.EnvAPIServers), apiServers)
	park := flags.Bool("park", os.Getenv("THESEUS_PARK") != "",
		"move pods as on kernels before Linux 6.2, by way of a temporary interface (also THESEUS_PARK=1)")
	if err := flags.Parse(args); err != nil {
		return usage{err}
	}
	if *name == "" {
		return usage{errors.New("the node's name is missing (set NODE_NAME or --node)")}
	}
	client, err := connect(*kubeconfig, *servers)
	if err != nil {
		return err
	}
	log.Info("agent starts", "node", *name)
	a := &agent.Agent{
		Name: *name,
		Node: &node.Node{
			Name: *name, Root: *root, Sys: "/proc/sys", Park: *park, Mounts: "/proc/1/ns/mnt",
			Commands: node.NewCommands(4, 30*time.Second),
		},
		Client: client, Log: log, Pod: os.Getenv("POD_UID"), Probers: agent.Folder(manifest.ProbeDir),
		Alive: net.JoinHostPort("127.0.0.1", strconv.Itoa(manifest.PortAlive)),
	}
	return a.Run(ctx)
}

// apiServers is the help of a flag.
const apiServers = "HOST:PORT,... of the API servers; that of the credentials is used if none of these accepts " +
	"(also " + manifest.EnvAPIServers + ")"

// connect reaches the API servers at their own addresses, if these are known: the rules of the Service kubernetes may
// be what is changed.
func connect(kubeconfig, servers string) (dynamic.Interface, error) {
	config, err := rest.InClusterConfig()
	if kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err == nil && servers != "" {
		addresses := strings.Split(servers, ",")
		for _, address := range addresses {
			if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
				return nil, usage{fmt.Errorf("--api-servers: %q is not HOST:PORT", address)}
			}
		}
		config, _, err = apiserver.Direct(config, addresses, false)
	}
	if err != nil {
		return nil, fmt.Errorf("reach the API: %w", err)
	}
	config.UserAgent = "theseus-agent"
	config.QPS, config.Burst = 50, 100
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("reach the API: %w", err)
	}
	return client, nil
}

// runIntroduce listens on its port of loopback when all pods are known.
func runIntroduce(ctx context.Context, log *slog.Logger, args []string) error {
	flags := flag.NewFlagSet("introduce", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig file; empty means the pod's own credentials")
	to := flags.String("to", "", "the network whose agents learn about the pods")
	pods := flags.String("pods", "", "the ranges of the pods' addresses, separated by commas")
	servers := flags.String("api-servers", os.Getenv(manifest.EnvAPIServers), apiServers)
	if err := flags.Parse(args); err != nil {
		return usage{err}
	}
	driver, _ := drivers.All().Get(*to)
	network, ok := driver.(cni.Introducer)
	if !ok {
		return usage{fmt.Errorf("%q is not a network to whose agents pods can be introduced", *to)}
	}
	var ranges []netip.Prefix
	for _, cidr := range strings.Split(*pods, ",") {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			return usage{fmt.Errorf("--pods: %w", err)}
		}
		ranges = append(ranges, prefix)
	}
	client, err := connect(*kubeconfig, *servers)
	if err != nil {
		return err
	}
	log.Info("introducing pods", "to", *to, "pods", *pods)
	writer := &introduce.Writer{Client: client, Network: network, Ranges: ranges, Log: log,
		Ready: net.JoinHostPort("127.0.0.1", strconv.Itoa(manifest.PortIntroduce))}
	return writer.Run(ctx)
}

// linger is how long a prober answers after it was told to stop: longer than kube-proxy takes to route its Service
// elsewhere, and as long as answers may take to arrive.
const linger = 2 * time.Second

func runProbe(ctx context.Context, log *slog.Logger, args []string) error {
	flags := flag.NewFlagSet("probe", flag.ContinueOnError)
	network := flags.String("network", "", "the network of this pod: old, new or host")
	address := flags.String("address", os.Getenv("HOST_IP"), "the node's own address, on which the network host serves")
	dir := flags.String("dir", manifest.ProbeDir, "the folder shared with the node's agent")
	if err := flags.Parse(args); err != nil {
		return usage{err}
	}
	pod := probe.Pod{Dir: *dir, Network: *network, UID: os.Getenv("POD_UID"), Ports: probe.PodPorts(), Linger: linger,
		Options: probe.Options{WarmUp: probe.WarmUp}, Warn: func(err error) {
			log.Warn("probing continues", "error", err)
		}}
	var err error
	if pod.Address, pod.Ports, err = places(*network, *address); err != nil {
		return err
	}
	log.Info("probe starts", "network", *network)
	return probe.RunPod(ctx, pod)
}

// places returns the address and the ports of a network's prober; hosts serve on the address of their node.
func places(network, address string) (string, probe.Ports, error) {
	switch {
	case network == "host" && address == "":
		return "", probe.Ports{}, usage{errors.New("the node's address is missing (set HOST_IP or --address)")}
	case network == "host":
		return address, probe.HostPorts(), nil
	case network != "old" && network != "new":
		return "", probe.Ports{}, usage{fmt.Errorf("the network is old, new or host, not %q", network)}
	}
	return "", probe.PodPorts(), nil
}

// runAnswer answers probes in a prober's pod, and lingers like the prober after it was told to stop.
func runAnswer(ctx context.Context, log *slog.Logger, args []string) error {
	flags := flag.NewFlagSet("answer", flag.ContinueOnError)
	network := flags.String("network", "", "the network of this pod: old, new or host")
	address := flags.String("address", os.Getenv("HOST_IP"), "the node's own address, on which the network host serves")
	if err := flags.Parse(args); err != nil {
		return usage{err}
	}
	at, ports, err := places(*network, *address)
	if err != nil {
		return err
	}
	log.Info("second responder starts", "network", *network)
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	context.AfterFunc(ctx, func() { time.AfterFunc(linger, stop) })
	return probe.Serve(serving, at, ports.Second())
}

// runStandIn answers on ports in place of a user's program.
func runStandIn(ctx context.Context, log *slog.Logger, args []string) error {
	flags := flag.NewFlagSet("stand-in", flag.ContinueOnError)
	tcp := flags.String("tcp", "", "TCP ports on which HTTP requests are answered, such as 80,8080")
	udp := flags.String("udp", "", "UDP ports on which datagrams are sent back")
	secure := flags.String("tls", "", "TCP ports on which HTTPS requests are answered, and admission reviews allowed")
	variable := flags.String("certificate", "",
		"environment variable with the certificate and the key of the TLS ports, as PEM")
	list := flags.String("ask", "", "TCP connections to open once a second, each with a number, such as 0=10.96.0.7:80")
	if err := flags.Parse(args); err != nil {
		return usage{err}
	}
	asks, err := standin.Asks(*list)
	if err != nil {
		return usage{err}
	}
	var sockets standin.Sockets
	for _, one := range []struct {
		list  string
		ports *[]int
	}{{*tcp, &sockets.TCP}, {*udp, &sockets.UDP}, {*secure, &sockets.TLS}} {
		ports, err := standin.Ports(one.list)
		if err != nil {
			return usage{err}
		}
		*one.ports = ports
	}
	if len(sockets.TLS) > 0 {
		pem := []byte(os.Getenv(*variable))
		pair, err := tls.X509KeyPair(pem, pem)
		if err != nil {
			return fmt.Errorf("the certificate in the variable %q: %w", *variable, err)
		}
		sockets.Certificate = &pair
	}
	open, err := standin.Listen(sockets)
	if err != nil {
		return err
	}
	log.Info("stand-in serves", "tcp", *tcp, "udp", *udp, "tls", *secure)
	asking, stop := context.WithCancel(ctx)
	defer stop()
	go standin.Asking(asking, asks, os.Stdout) // ends when the stand-in is told to stop
	return open.Serve(ctx)
}
