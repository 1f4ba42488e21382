// Command theseus-controller runs approved plans in the cluster. `run` (the default) is the controller of the
// Deployment; `web` serves the live page; `uninstall-check` fails while a migration that it runs has not ended.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"

	"github.com/theseus-cni/theseus/internal/cli/agentimage"
	"github.com/theseus-cni/theseus/internal/cli/version"
	"github.com/theseus-cni/theseus/internal/cluster/apiserver"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/run/admission"
	"github.com/theseus-cni/theseus/internal/run/changes"
	"github.com/theseus-cni/theseus/internal/run/controller"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/metrics"
	"github.com/theseus-cni/theseus/internal/run/notify"
	"github.com/theseus-cni/theseus/internal/safeio/infile"
	"github.com/theseus-cni/theseus/internal/safeio/outfile"
	"github.com/theseus-cni/theseus/internal/safeio/printable"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := start(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "error: %s\nhint: %s\n", printable.Line(err.Error()), printable.Line(hint(err)))
		os.Exit(1)
	}
}

// usage is an error in the command line.
type usage struct{ error }

func hint(err error) string {
	if _, wrong := errors.AsType[usage](err); wrong {
		return "theseus-controller [run] [flags] | theseus-controller web [flags] | theseus-controller " +
			"uninstall-check [flags] | theseus-controller --version; -h lists the flags"
	}
	return cmp.Or(engine.HintOf(err),
		"the controller is started by its Deployment; `kubectl -n theseus-system describe pods` shows how")
}

func start(ctx context.Context, args []string) error {
	command := "run"
	if len(args) > 0 && (!strings.HasPrefix(args[0], "-") || strings.TrimLeft(args[0], "-") == "version") {
		command, args = args[0], args[1:]
	}
	switch command {
	case "run":
		return run(ctx, args)
	case "web":
		return page(ctx, args)
	case "uninstall-check":
		return uninstallCheck(ctx, args)
	case "--version", "-version", "version":
		fmt.Println(version.Read().Line("theseus-controller"))
		return nil
	}
	return usage{fmt.Errorf("unknown command %q", command)}
}

// list is a flag that may be given several times.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

// Set implements flag.Value.
func (l *list) Set(text string) error {
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" || port == "" {
		return errors.New("it must be HOST:PORT")
	}
	*l = append(*l, text)
	return nil
}

// connection are the flags that say how the API server is reached.
type connection struct {
	kubeconfig string
	servers    list
	first      list
}

func (c *connection) register(flags *flag.FlagSet) {
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig `file`; empty means the pod's own credentials")
	flags.Var(&c.servers, "api-server",
		"`HOST:PORT` of an API server, repeatable; without it, the controller learns the addresses from the cluster")
	flags.Var(&c.first, "first-api-server",
		"`HOST:PORT` of an API server to begin with, repeatable; the controller learns the others, and later ones")
}

// config returns the configuration of the clients. known are addresses that were learned earlier. Servers is nil if the
// configuration's own address is used, which is that of a kubeconfig.
func (c *connection) config(known []string) (*rest.Config, *apiserver.Servers, error) {
	if c.kubeconfig != "" {
		config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
		if err != nil || len(c.servers) == 0 {
			return config, nil, err
		}
		return apiserver.Direct(config, c.servers, true)
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("reach the API: %w", err)
	}
	if len(c.servers) > 0 {
		return apiserver.Direct(config, c.servers, true)
	}
	return apiserver.Direct(config, append(known, c.first...), false)
}

// client reaches the API servers. It learns their addresses from the cluster; nil if flags give them, or if one
// is enough.
func (c *connection) client(known []string) (*kube.Client, *apiserver.Servers, error) {
	config, learnt, err := c.config(known)
	if err != nil {
		return nil, nil, err
	}
	if len(c.servers) > 0 {
		learnt = nil
	}
	client, err := kube.New(config, version.Read().Version)
	return client, learnt, err
}

func parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return err // the flags are printed
	} else if err != nil {
		return usage{err}
	}
	if flags.NArg() > 0 {
		return usage{fmt.Errorf("unexpected argument %q", flags.Arg(0))}
	}
	return nil
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("run", flag.ContinueOnError)
	var reach connection
	reach.register(flags)
	dir := flags.String("state-dir", "/var/lib/theseus",
		"`folder` for the copies of journals, the evidence, and the API servers' addresses")
	approvals := flags.Int("approvals", 1, "how many users must approve a plan before it runs")
	signers := flags.String("allowed-signers", "",
		"`file` with the people whose signatures of approvals count, in the format of ssh-keygen; unsigned approvals "+
			"then do not count. Before Kubernetes 1.30, no approval counts without it")
	memory := flags.Int64("memory", 0, "`bytes` of memory that this process may use; 0 means 1 GiB")
	planning := flags.Bool("planning", true, "make plans for Changes")
	image := flags.String("agent-image", "",
		"`image` of theseus-agent for Changes that name none; empty: the one of this release")
	registry := flags.String("image-registry", "",
		"`registry`, and folder in it, that has the images of Theseus' releases; empty: that of the release")
	health := flags.String("health", net.JoinHostPort("127.0.0.1", strconv.Itoa(manifest.PortController)),
		"`address` that serves /healthz")
	scraped := flags.String("metrics", "",
		"`address` that serves /metrics, without encryption and to everyone who reaches it; empty: none")
	notified := flags.String("notify", "", "`URL`, or @FILE with the URL, that "+notify.Gets)
	secretFile := flags.String("notify-secret-file", "", "`file` with "+notify.Signs)
	writes := flags.Int("max-writes-per-second", kube.WritesPerSecond,
		"writes of a run to the API server a second, on average; 0 means no bound")
	if err := parse(flags, args); err != nil {
		return err
	}
	if err := kube.ValidWrites(*writes); err != nil {
		return usage{fmt.Errorf("--max-writes-per-second: %w", err)}
	}
	if *scraped != "" {
		if err := metrics.ValidAddress(*scraped); err != nil {
			return usage{err}
		}
	}
	if *notified == "" && *secretFile != "" {
		return usage{errors.New("--notify-secret-file is given without --notify")}
	}
	if *notified != "" && !strings.HasPrefix(*notified, "@") {
		if _, err := notify.New(*notified, ""); err != nil {
			return usage{err}
		}
	}
	if *memory < 0 {
		return usage{fmt.Errorf("--memory %d: it must not be negative", *memory)}
	}
	if *memory > 0 {
		debug.SetMemoryLimit(*memory / 10 * 9) // the collector works harder before the kernel ends the process
	}
	if *approvals < 1 {
		return usage{fmt.Errorf("--approvals %d: at least one user must approve a plan", *approvals)}
	}
	if err := os.MkdirAll(*dir, 0o700); err != nil {
		return err
	}
	client, servers, err := reach.client(known(*dir))
	if err != nil {
		return err
	}
	counts, stopServing, err := measure(ctx, *scraped, &client)
	if err != nil {
		return err
	}
	defer stopServing()
	target, stopReading := notifies(ctx, *notified, *secretFile)
	defer stopReading()
	if servers != nil {
		defer learn(ctx, client.Typed, servers, *dir)()
	}
	// a run that is under way outlives the signal
	broadcaster := record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)))
	broadcaster.StartRecordingToSink(controller.Sink(client.Typed.CoreV1()))
	defer broadcaster.Shutdown()
	c := &controller.Controller{
		Client: client, Metrics: counts, Notify: target, Holder: holder(), Approvals: *approvals,
		MaxWrites: *writes,
		Signers:   *signers, Planning: *planning, Memory: admission.Memory(*memory), Dir: *dir,
		Version: version.Read().Version,
		Out:     printable.NewWriter(os.Stdout), Events: broadcaster.NewRecorder(runtime.NewScheme(),
			corev1.EventSource{Component: manifest.ControllerName}),
	}
	stop, err := serve(*health, c.Healthy)
	if err != nil {
		return err
	}
	defer stop()
	if *planning {
		planner := &changes.Planner{Client: client, Holder: c.Holder + " (plans)", Version: c.Version,
			Out: c.Out, Events: c.Events, AgentImage: agentimage.Of(*image, *registry),
			Memory: admission.Memory(*memory)}
		defer alongside(ctx, planner.Run)()
	}
	return c.Run(ctx)
}

// measure serves metrics at an address, and lets them count the requests of a client; an empty address means none.
func measure(ctx context.Context, address string, client **kube.Client) (counts *metrics.Metrics,
	stop func(), err error) {
	if address == "" {
		return nil, func() {}, nil
	}
	counts = metrics.New(version.Read().Version)
	if *client, err = (*client).Through(counts.Transport); err != nil {
		return nil, nil, err
	}
	stopServing := func() {}
	stopTrying := untilDone(ctx, func() (err error) {
		var close func()
		if _, close, err = counts.Serve(address); err == nil {
			stopServing = close
		}
		return err
	})
	return counts, func() { stopTrying(); stopServing() }, nil
}

// notifies reads where notifications go; an empty address means nowhere. target returns nil until that can be read.
func notifies(ctx context.Context, address, secretFile string) (target func() *notify.Target, stop func()) {
	if address == "" {
		return nil, func() {}
	}
	var found atomic.Pointer[notify.Target]
	return found.Load, untilDone(ctx, func() error {
		to, err := notify.New(address, secretFile)
		if err != nil {
			return err
		}
		if text := to.Exposed(); text != "" {
			fmt.Fprintf(os.Stderr, "warning: %s\n", text)
		}
		found.Store(to)
		return nil
	})
}

// againEvery is the interval at which what a run can do without is tried again.
var againEvery = 15 * time.Second

// untilDone does what a run can do without: if it fails, the run goes on, and it is tried again until ctx ends or it is
// stopped.
func untilDone(ctx context.Context, do func() error) (stop func()) {
	said := ""
	once := func() bool {
		err := do()
		if err != nil && err.Error() != said {
			said = err.Error()
			fmt.Fprintf(os.Stderr, "warning: %s\nhint: %s\n", printable.Line(said), printable.Line(hint(err)))
		}
		return err == nil
	}
	if once() {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	wait := alongside(ctx, func(ctx context.Context) {
		for outage.Sleep(ctx, againEvery) == nil && !once() {
		}
	})
	return func() { cancel(); wait() }
}

// alongside runs a loop until ctx ends. The returned function waits until it has.
func alongside(ctx context.Context, loop func(context.Context)) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		loop(ctx)
	}()
	return func() { <-done }
}

// holder names this process for the lock and the journal.
func holder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return controller.HolderPrefix + cmp.Or(os.Getenv("NODE_NAME"), host) + "/" +
		cmp.Or(os.Getenv("POD_NAME"), strconv.Itoa(os.Getpid()))
}

// serversFile has the addresses of the API servers, in the state folder.
const serversFile = "api-servers.json"

// known are the addresses of API servers that an earlier process learned; none if they cannot be read.
func known(dir string) (addresses []string) {
	const most = 64 << 10
	_ = infile.ReadJSON(filepath.Join(dir, serversFile), most, &addresses)
	return addresses
}

// learnEvery is the interval at which the addresses of the API servers are read.
const learnEvery = time.Minute

// learn reads the addresses of the API servers now and then, and keeps them in the state folder, until stopped.
func learn(ctx context.Context, client kubernetes.Interface, servers *apiserver.Servers, dir string) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // as the broadcaster
	done := make(chan struct{})
	go func() {
		defer close(done)
		for pause := time.Duration(0); ; pause = learnEvery {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			call, end := context.WithTimeout(ctx, 10*time.Second)
			addresses, err := kube.APIServers(call, client)
			end()
			if err == nil && len(addresses) > 0 {
				servers.Use(addresses)
				err = outfile.WriteJSON(filepath.Join(dir, serversFile), addresses)
			}
			if err != nil && ctx.Err() == nil {
				fmt.Fprintf(os.Stderr, "warning: the addresses of the API servers: %s\n", printable.Line(err.Error()))
			}
		}
	}()
	return func() { cancel(); <-done }
}

// serve answers /healthz until stopped.
func serve(address string, healthy func() bool) (stop func(), err error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if !healthy() {
			http.Error(w, "the main loop is stuck", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // ends with Close
	}()
	return func() { server.Close(); <-done }, nil
}

func uninstallCheck(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("uninstall-check", flag.ContinueOnError)
	var reach connection
	reach.register(flags)
	if err := parse(flags, args); err != nil {
		return err
	}
	client, _, err := reach.client(nil)
	if err != nil {
		return err
	}
	return controller.Removable(ctx, client)
}
