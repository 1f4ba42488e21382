// Package benched runs a benchmark (proof/bench) on a live cluster: it makes the pods and the Service, follows the client's results,
// watches the nodes under load, and removes everything.
package benched

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/network/joint"
	"github.com/theseus-cni/theseus/internal/proof/bench"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/step"
)

// Bench is a benchmark of a cluster.
type Bench struct {
	Actor  *kube.Actor
	Image  string
	Bounds bench.Bounds
	// Nodes are the client's, and another one if there is one.
	Nodes []corev1.Node
	// Note is called with what is done and measured, a line each.
	Note func(string)
}

const (
	// ready bounds the wait for a pod: a node may have to pull the image.
	ready = 3 * time.Minute
	// accountWithin bounds the wait for the ServiceAccount that a controller makes in a new namespace.
	accountWithin = 30 * time.Second
	// lookEvery is the time between two looks at the nodes, and blind how long they may be impossible.
	lookEvery = time.Second
	blind     = 10 * time.Second
)

// Plan is what would be measured, with the cost, before any pod exists: addresses are missing.
func (b *Bench) Plan() bench.Plan {
	return b.Bounds.Plan(b.Bounds.Tasks(b.paths(map[string]*corev1.Pod{}), ""), nil)
}

// part is a responder, and its node.
type part struct{ name, node string }

func (b *Bench) parts() []part {
	parts := []part{{manifest.BenchNear, b.Nodes[0].Name}, {manifest.BenchNearHost, b.Nodes[0].Name}}
	if len(b.Nodes) > 1 {
		parts = append(parts, part{manifest.BenchFar, b.Nodes[1].Name}, part{manifest.BenchFarHost, b.Nodes[1].Name})
	}
	return parts
}

// Pods is how many pods there are, the client included.
func (b *Bench) Pods() int { return len(b.parts()) + 1 }

// atMost is how long the kubelets let the pods live.
func (b *Bench) atMost() time.Duration { return 3*ready + 2*b.Plan().Cost().Time }

// Run makes everything, measures, and removes everything, even if ctx ends. If the benchmark was stopped, by its watch or by an error, the
// result has what was measured until then, and why.
func (b *Bench) Run(ctx context.Context) (result *bench.Result, err error) {
	if err := b.clear(ctx); err != nil {
		return nil, err
	}
	if err := b.account(ctx); err != nil {
		return nil, err
	}
	b.Note(fmt.Sprintf("making %s and a Service in %s", cluster.Count(b.Pods(), "pod"), v1alpha1.Namespace))
	var responders []step.Action
	for _, part := range b.parts() {
		responders = append(responders, joint.Apply(*manifest.BenchResponder(b.Image, part.node, part.name, b.atMost())))
	}
	behind := manifest.BenchNear
	if len(b.Nodes) > 1 {
		behind = manifest.BenchFar
	}
	responders = append(responders, joint.Apply(*manifest.BenchService(behind)))
	for _, part := range b.parts() {
		responders = append(responders, waitFor(part))
	}
	back, err := b.Actor.Install(ctx, responders)
	defer func() {
		b.Note("removing the pods and the Service")
		err = errors.Join(err, back(ctx))
	}()
	if err != nil {
		return nil, refused(err)
	}
	plan, err := b.addressed(ctx)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(plan)
	if err != nil {
		return nil, err
	}
	client, err := b.Actor.Install(ctx, []step.Action{joint.Apply(*manifest.BenchPod(b.Image, b.Nodes[0].Name, string(text), b.atMost())),
		waitFor(part{manifest.BenchClient, b.Nodes[0].Name})})
	defer func() { err = errors.Join(err, client(ctx)) }() // before the responders
	if err != nil {
		return nil, refused(err)
	}
	return b.measure(ctx, plan)
}

func waitFor(p part) step.Action {
	return joint.Wait("wait until pod "+manifest.BenchPodName(p.name)+" is ready on "+p.node,
		step.Condition{Kind: step.PodReady, Namespace: v1alpha1.Namespace, Selector: manifest.LabelBench + "=" + p.name, Node: p.node}, ready)
}

// refused adds what to do to the error of an object that the cluster's rules refuse.
func refused(err error) error {
	if _, hint := outage.Denied(err); hint != "" {
		return engine.WithHint(err, strings.ReplaceAll(hint, "NAME", v1alpha1.Namespace))
	}
	return err
}

// clear removes the pods that a benchmark left whose process was killed.
func (b *Bench) clear(ctx context.Context) error {
	pods, err := b.Actor.Typed.CoreV1().Pods(v1alpha1.Namespace).List(ctx, metav1.ListOptions{LabelSelector: manifest.LabelBench})
	if err != nil {
		return err
	}
	var left []step.Action
	for i := range pods.Items {
		left = append(left, joint.Remove(step.Ref{APIVersion: "v1", Kind: "Pod", Namespace: v1alpha1.Namespace, Name: pods.Items[i].Name}))
	}
	if len(left) > 0 {
		b.Note(fmt.Sprintf("removing %s of a benchmark that did not end", cluster.Count(len(left), "pod")))
	}
	left = append(left, joint.Remove(step.Ref{APIVersion: "v1", Kind: "Service", Namespace: v1alpha1.Namespace, Name: manifest.BenchName}))
	for _, action := range left {
		if _, err := b.Actor.Do(ctx, action, nil); err != nil {
			return fmt.Errorf("%s: %w", action.Title, err)
		}
	}
	return nil
}

// account waits for the namespace's ServiceAccount, without which no pod is admitted.
func (b *Bench) account(ctx context.Context) error {
	for end := time.Now().Add(accountWithin); ; {
		_, err := b.Actor.Typed.CoreV1().ServiceAccounts(v1alpha1.Namespace).Get(ctx, "default", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) || time.Now().After(end) { // without the right to look, the pods say what is missing
			return nil
		}
		if err := outage.Sleep(ctx, lookEvery/4); err != nil {
			return err
		}
	}
}

// paths are the ends of the paths; without the pods, their addresses are empty.
func (b *Bench) paths(pods map[string]*corev1.Pod) []bench.Paths {
	at := func(part string) bench.Host {
		pod, offset := pods[part], 0
		if pod == nil {
			return bench.Host{}
		}
		address := pod.Status.PodIP
		if pod.Spec.HostNetwork {
			address, offset = pod.Status.HostIP, manifest.HostOffset
		}
		port := func(n int) string { return net.JoinHostPort(address, strconv.Itoa(n+offset)) }
		return bench.Host{Echo: port(manifest.PortUDP), Accept: port(manifest.PortTCP), Sink: port(manifest.PortSink), HTTP: port(manifest.PortHTTP)}
	}
	paths := []bench.Paths{{Name: bench.SameNode, Host: at(manifest.BenchNear)}}
	if len(b.Nodes) > 1 {
		return append(paths, bench.Paths{Name: bench.TwoNodes, Host: at(manifest.BenchFar)}, bench.Paths{Name: bench.ToHost, Host: at(manifest.BenchFarHost)})
	}
	return append(paths, bench.Paths{Name: bench.OwnHost, Host: at(manifest.BenchNearHost)})
}

// addressed is the plan with the addresses of the pods and of the Service.
func (b *Bench) addressed(ctx context.Context) (bench.Plan, error) {
	pods := map[string]*corev1.Pod{}
	for _, part := range b.parts() {
		pod, err := b.Actor.Typed.CoreV1().Pods(v1alpha1.Namespace).Get(ctx, manifest.BenchPodName(part.name), metav1.GetOptions{})
		if err != nil {
			return bench.Plan{}, err
		}
		pods[part.name] = pod
	}
	service, err := b.Actor.Typed.CoreV1().Services(v1alpha1.Namespace).Get(ctx, manifest.BenchName, metav1.GetOptions{})
	if err != nil {
		return bench.Plan{}, err
	}
	counters := map[string]string{}
	for _, part := range []string{manifest.BenchNearHost, manifest.BenchFarHost} {
		if pod := pods[part]; pod != nil {
			counters[pod.Spec.NodeName] = net.JoinHostPort(pod.Status.HostIP, strconv.Itoa(manifest.PortHTTP+manifest.HostOffset))
		}
	}
	return b.Bounds.Plan(b.Bounds.Tasks(b.paths(pods), net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(manifest.PortHTTP))), counters), nil
}

// measure follows the client until it is done, or the watch on the nodes stops it.
func (b *Bench) measure(ctx context.Context, plan bench.Plan) (*bench.Result, error) {
	result := &bench.Result{APIVersion: v1alpha1.APIVersion, Kind: "NetworkBench", Began: time.Now().UTC().Format(time.RFC3339), Bounds: b.Bounds,
		Cost: plan.Cost(), Client: b.Nodes[0].Name, Tasks: plan.Tasks, Counters: map[string]map[string]int64{}}
	if len(b.Nodes) > 1 {
		result.Other = b.Nodes[1].Name
	}
	following, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		if why := b.watch(following); why != nil {
			stop(why)
		}
	}()
	err := b.follow(following, func(line bench.Line) { b.take(result, line) })
	var hurt hurting
	if errors.As(context.Cause(following), &hurt) {
		result.Stopped, err = hurt.Error(), nil
	}
	stop(nil)
	<-watched
	switch {
	case ctx.Err() != nil:
		result.Stopped = "it was interrupted"
	case err != nil:
		result.Stopped = err.Error()
	}
	result.Rows = bench.Rows(plan.Tasks, result.Samples)
	result.Says = result.Words()
	return result, err
}

// take adds a line of the client's to the result.
func (b *Bench) take(result *bench.Result, line bench.Line) {
	switch {
	case line.Sample != nil:
		s := *line.Sample
		if s.Task < 0 || s.Task >= len(result.Tasks) {
			return
		}
		result.Samples = append(result.Samples, s)
		b.Note(said(result.Tasks[s.Task], s, b.Bounds.Runs))
	case line.Counters != nil:
		result.Counters = line.Counters
	case line.Note != "":
		result.Notes = append(result.Notes, line.Note)
	case line.Stopped != "":
		result.Stopped = line.Stopped
	}
}

// said is a sample as a line of progress.
func said(task bench.Task, s bench.Sample, runs int) string {
	text := fmt.Sprintf("run %d of %d: %s, %s: ", s.Run, runs, task.Path, task.Name())
	switch {
	case s.Error != "" && s.Value == 0:
		return text + s.Error
	case task.Kind == bench.Stream:
		return text + fmt.Sprintf("%.0f Mbit/s", s.Value)
	case s.Latency == nil:
		return text + fmt.Sprintf("%.0f/s", s.Value)
	}
	return text + fmt.Sprintf("%.0f/s, %d lost, p99 %s", s.Value, s.Latency.Lost(), bench.Millis(float64(s.Latency.P99)))
}

// hurting is why the watch stops the load.
type hurting struct{ error }

// watch looks at the nodes under load until ctx ends. It returns why the load must stop.
func (b *Bench) watch(ctx context.Context) error {
	seen := time.Now()
	for outage.Sleep(ctx, lookEvery) == nil {
		for _, node := range b.Nodes {
			within, cancel := context.WithTimeout(ctx, blind/2)
			live, err := b.Actor.Typed.CoreV1().Nodes().Get(within, node.Name, metav1.GetOptions{})
			cancel()
			switch {
			case ctx.Err() != nil:
				return nil
			case apierrors.IsNotFound(err):
				return hurting{fmt.Errorf("node %s was removed", node.Name)}
			case err != nil && time.Since(seen) > blind:
				return hurting{fmt.Errorf("node %s could not be watched for %s: %w", node.Name, blind, err)}
			case err != nil:
			case !cluster.NodeReady(live):
				return hurting{fmt.Errorf("node %s is not Ready any more", node.Name)}
			default:
				seen = time.Now()
			}
		}
	}
	return nil
}

// errNoEnd is of a log that ends before the client's last line.
var errNoEnd = errors.New("it ends without a result")

// follow passes the client's lines on until the last one. A log that breaks off is read again, without the lines that are known.
func (b *Bench) follow(ctx context.Context, take func(bench.Line)) error {
	known := 0
	for broken := time.Now(); ; {
		before := known
		last, err := b.read(ctx, &known, take)
		if last {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if known > before {
			broken = time.Now()
		}
		if why := b.ended(ctx); why != nil {
			return why
		}
		if time.Since(broken) > b.Bounds.Duration+ready/3 {
			return engine.WithHint(fmt.Errorf("the log of pod %s cannot be read: %w", manifest.BenchPodName(manifest.BenchClient), cmp.Or(err, errNoEnd)),
				"the API server must reach the kubelet, as for kubectl logs, and the user needs get on pods/log")
		}
		if err := outage.Sleep(ctx, lookEvery/2); err != nil {
			return err
		}
	}
}

// read reads the log from its begin. last is true if the client's last line was read.
func (b *Bench) read(ctx context.Context, known *int, take func(bench.Line)) (last bool, err error) {
	log, err := b.Actor.Typed.CoreV1().Pods(v1alpha1.Namespace).GetLogs(manifest.BenchPodName(manifest.BenchClient),
		&corev1.PodLogOptions{Container: manifest.BenchConductor, Follow: true}).Stream(ctx)
	if err != nil {
		return false, err
	}
	defer log.Close()
	lines := bufio.NewScanner(io.LimitReader(log, 64<<20))
	lines.Buffer(nil, 1<<20)
	for n := 0; lines.Scan(); n++ {
		if n < *known {
			continue
		}
		var line bench.Line
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue // the log of the program itself; or half a line, which a later read has whole
		}
		*known = n + 1
		take(line)
		if line.Done || line.Stopped != "" {
			return true, nil
		}
	}
	return false, lines.Err()
}

// ended is the error of a client that ended without its last line; nil while it runs.
func (b *Bench) ended(ctx context.Context) error {
	pod, err := b.Actor.Typed.CoreV1().Pods(v1alpha1.Namespace).Get(ctx, manifest.BenchPodName(manifest.BenchClient), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return errors.New("the client's pod was deleted before the benchmark was done")
	case err != nil:
		return nil // follow bounds how long that may last
	case pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded:
		return nil
	}
	return engine.WithHint(fmt.Errorf("the client's pod ended before the benchmark was done: %s %s", pod.Status.Phase, strings.TrimSpace(pod.Status.Reason+" "+pod.Status.Message)),
		"run it again; a pod that was evicted, or ran out of memory, is in kubectl get events -n "+v1alpha1.Namespace)
}
