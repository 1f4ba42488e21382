// Package benched runs a benchmark (proof/bench) on a live cluster: it makes the pods and the Service, follows the
// client's results, watches the nodes under load, and removes everything.
package benched

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

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
	// Actor makes what is made, while this process has the lock on the cluster.
	Actor *kube.Actor
	// Client removes it, and reads. It must not need the lock: who has lost it must still be able to stop the load.
	Client *kube.Client
	Image  string
	Bounds bench.Bounds
	// Nodes are the client's, and another one if there is one.
	Nodes []corev1.Node
	// Readings are what programs of the network serve on nodes: their counters are read next to the kernel's.
	Readings []step.Reading
	// Addresses counts the addresses of pods; nil if they are not to be counted.
	Addresses func(context.Context) ([]cluster.Addresses, error)
	// Note is called with what is done and measured, a line each.
	Note func(string)

	// id tells what this benchmark made from what others did.
	id string
	// before are the addresses of pods before there is a pod of this benchmark, uncounted is why they are not known.
	before    []cluster.Addresses
	uncounted error
	// leash is when the load ends by itself; zero before there is any.
	leash time.Time
	// unenforced is set when the network was seen not to enforce policies: no more are made.
	unenforced bool
}

const (
	// ready bounds the wait for the pods: a node may have to pull the image.
	ready = 3 * time.Minute
	// removal bounds how long it is tried to remove everything.
	removal = 2 * time.Minute
	// accountWithin bounds the wait for the ServiceAccount that a controller makes in a new namespace.
	accountWithin = 30 * time.Second
	// lookEvery is the time between two looks at a node, lookWithin how long one may take, and blind how long they may
	// fail.
	lookEvery  = time.Second
	lookWithin = 2 * time.Second
	blind      = 10 * time.Second
	// unread is how long the client's log may be unreadable beyond the duration of a measurement.
	unread = time.Minute
)

// plans are what the clients of a run carry out, one after another: first without policies of the benchmark, then with
// each number of rules.
func (b *Bench) plans(paths []bench.Paths, service string, counters map[string]string) []bench.Plan {
	plans := []bench.Plan{b.Bounds.Plan(b.Bounds.Tasks(paths, service), counters)}
	if len(b.Bounds.PolicyRules) > 0 { // after another run, until the network has removed its rules
		plans[0].Reach = bench.Enforced
	}
	next := len(plans[0].Tasks)
	for _, rules := range b.Bounds.PolicyRules {
		path := paths[min(1, len(paths)-1)] // to the other node, if there is one
		if len(b.Nodes) == 1 {
			path = paths[0]
		}
		plan := b.Bounds.Plan(b.Bounds.PolicyTasks(path, rules), counters)
		plan.First, plan.Reach, plan.Denied = next, bench.Enforced, path.Host.HTTP
		next += len(plan.Tasks)
		plans = append(plans, plan)
	}
	return plans
}

// Tasks are what would be measured, before any pod exists: addresses are missing.
func (b *Bench) Tasks() []bench.Task { return tasks(b.plans(b.paths(nil), "", nil)) }

func tasks(plans []bench.Plan) (all []bench.Task) {
	for _, plan := range plans {
		all = append(all, plan.Tasks...)
	}
	return all
}

// Cost is what all runs cost.
func (b *Bench) Cost() (cost bench.Cost) {
	for _, plan := range b.plans(b.paths(nil), "", nil) {
		cost = cost.Plus(plan.Cost())
	}
	return cost
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

// atMost is how long the responders may live.
func (b *Bench) atMost() time.Duration {
	var run time.Duration
	for i, plan := range b.plans(b.paths(nil), "", nil) {
		plan.Denied = ""
		if run += plan.Leash() + clientWithin; i > 0 { // the waits of Plan.Denied, and the policies
			run += 2*plan.Reach + policiesWithin
		}
	}
	return ready + time.Duration(b.Bounds.Runs)*run + removal
}

// clientWithin is how long a run's client may take to come up and to be removed, on average.
const clientWithin = 30 * time.Second

// policiesWithin bounds how long it may take to make the policies of one number of rules.
const policiesWithin = 2 * time.Minute

// Run makes everything, measures, and removes everything, even if ctx ends. If the benchmark was stopped, by its watch
// or by an error, the result has what was measured until then, and why.
func (b *Bench) Run(ctx context.Context) (result *bench.Result, err error) {
	result, err = b.run(ctx)
	if result == nil || b.Addresses == nil || ctx.Err() != nil {
		return result, err
	}
	after, again := b.addresses(ctx)
	if why := errors.Join(b.uncounted, again); why != nil {
		result.Notes = append(result.Notes, "the addresses that are left were not counted: "+
			strings.ReplaceAll(why.Error(), "\n", "; "))
	}
	result.Addresses = bench.LeftOf(b.before, after, result.Client, result.Other)
	return result, err
}

// addresses counts the addresses of pods.
func (b *Bench) addresses(ctx context.Context) ([]cluster.Addresses, error) {
	if b.Addresses == nil {
		return nil, nil
	}
	return b.Addresses(ctx)
}

func (b *Bench) run(ctx context.Context) (result *bench.Result, err error) {
	b.id = rand.Text()
	left, err := b.Client.RemoveBench(ctx, manifest.LabelBench, removal, b.waiting)
	if err != nil {
		return nil, engine.WithHint(fmt.Errorf("removing the pods of a benchmark that did not end: %w", err),
			removeHint)
	}
	err = b.Client.RemoveBenchPolicies(ctx, manifest.LabelBench, removal, b.waiting)
	switch {
	case apierrors.IsForbidden(err) && len(b.Bounds.PolicyRules) == 0: // they put no load on the network
		b.Note(fmt.Sprintf("policies of earlier benchmarks, if there are any, stay: %v", err))
	case err != nil:
		return nil, engine.WithHint(fmt.Errorf("removing the policies of a benchmark that did not end: %w", err),
			removeHint)
	}
	if left > 0 {
		b.Note(fmt.Sprintf("removed %s of a benchmark that did not end", cluster.Count(left, "pod")))
	}
	if err := b.account(ctx); err != nil {
		return nil, err
	}
	if err := b.mayRule(ctx); err != nil {
		return nil, err
	}
	b.before, b.uncounted = b.addresses(ctx)
	b.Note(fmt.Sprintf("making %s and a Service in %s", cluster.Count(b.Pods(), "pod"), v1alpha1.Namespace))
	defer func() {
		b.Note("removing the pods and the Service")
		err = errors.Join(err, b.remove(ctx, manifest.LabelBenchID+"="+b.id))
	}()
	behind := manifest.BenchNear
	if len(b.Nodes) > 1 {
		behind = manifest.BenchFar
	}
	readings := ""
	if len(b.Readings) > 0 {
		text, err := json.Marshal(b.Readings)
		if err != nil {
			return nil, err
		}
		readings = string(text)
	}
	objects, names := []*unstructured.Unstructured{manifest.BenchService(behind, b.id)}, []string{}
	for _, part := range b.parts() {
		objects = append(objects, manifest.BenchResponder(b.Image, part.node, part.name, b.id, b.atMost(),
			readings))
		names = append(names, manifest.BenchPodName(part.name))
	}
	if err := b.make(ctx, objects...); err != nil {
		return nil, err
	}
	pods, err := b.up(ctx, names...)
	if err != nil {
		return nil, err
	}
	plans, err := b.addressed(ctx, pods)
	if err != nil {
		return nil, err
	}
	return b.measure(ctx, plans)
}

// mayRule returns why the policies of this benchmark could not be made or removed, before there is any load; nil if
// there are to be none.
func (b *Bench) mayRule(ctx context.Context) error {
	if len(b.Bounds.PolicyRules) == 0 {
		return nil
	}
	policies := manifest.BenchPolicies(manifest.BenchNear, b.id, manifest.BenchClientName(1, 1), 1)
	err := outage.Retry(ctx, outage.Limits{Away: blind, Refused: blind}, b.waiting, func(ctx context.Context) error {
		return b.Client.MayMakeBenchPolicy(ctx, policies[0])
	})
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err) && outage.Refused(err):
		return engine.WithHint(fmt.Errorf("--policy-rules: %w", err), "it needs create, patch, list and delete on "+
			"networkpolicies in the namespace "+v1alpha1.Namespace)
	}
	return refused(fmt.Errorf("--policy-rules: %w", err))
}

// make creates objects.
func (b *Bench) make(ctx context.Context, objects ...*unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, ready)
	defer cancel()
	for _, object := range objects {
		action := joint.Apply(*object)
		if err := outage.Retry(ctx, outage.Limits{Away: blind, Refused: blind}, b.waiting,
			func(ctx context.Context) error {
				_, err := b.Actor.Do(ctx, action, nil)
				return err
			}); err != nil {
			return refused(fmt.Errorf("%s: %w", action.Title, err))
		}
	}
	return nil
}

// remove removes what a selector matches, even if ctx has ended.
func (b *Bench) remove(ctx context.Context, selector string) error {
	_, err := b.Client.RemoveBench(context.WithoutCancel(ctx), selector, removal, b.waiting)
	if err == nil {
		return b.unrule(ctx, selector)
	}
	goes := "they put no load on the network"
	if time.Now().Before(b.leash) {
		goes = "the load ends by itself, at " + b.leash.UTC().Format(time.TimeOnly) + " UTC at the latest"
	}
	return errors.Join(engine.WithHint(fmt.Errorf("the pods of the benchmark could not be removed; %s: %w", goes, err),
		removeHint), b.unrule(ctx, selector))
}

// unrule removes the policies that a selector matches, even if ctx has ended.
func (b *Bench) unrule(ctx context.Context, selector string) error {
	if len(b.Bounds.PolicyRules) == 0 {
		return nil
	}
	err := b.Client.RemoveBenchPolicies(context.WithoutCancel(ctx), selector, removal, b.waiting)
	if err == nil {
		return nil
	}
	return engine.WithHint(fmt.Errorf("the policies of the benchmark could not be removed; they select its own pods "+
		"alone: %w", err), removeHint)
}

// removeHint is how a person removes what a benchmark left.
const removeHint = "kubectl -n " + v1alpha1.Namespace + " delete pods,services,networkpolicies -l " +
	manifest.LabelBench

func (b *Bench) waiting(err error) { b.Note(fmt.Sprintf("waiting for the API server: %v", err)) }

// up waits until this benchmark's pods are ready, or have done their work, and returns them by their parts. One that
// has failed, or is not there any more, is an error.
func (b *Bench) up(ctx context.Context, names ...string) (map[string]*corev1.Pod, error) {
	within, cancel := context.WithTimeout(ctx, ready)
	defer cancel()
	for {
		why := ""
		found, err := b.list(within)
		switch {
		case err == nil:
			parts := map[string]*corev1.Pod{}
			for _, name := range names {
				pod := found[name]
				waits, err := standing(name, pod)
				if err != nil {
					return nil, err
				}
				if why = waits; why != "" {
					break
				}
				parts[pod.Labels[manifest.LabelBench]] = pod
			}
			if why == "" {
				return parts, nil
			}
		case outage.Passes(err), outage.Refused(err), outage.Expired(err):
			why = err.Error()
		default:
			return nil, fmt.Errorf("pods of the benchmark: %w", err)
		}
		if outage.Sleep(within, lookEvery/2) != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, engine.WithHint(fmt.Errorf("the pods of the benchmark are not ready after %s: %s", ready, why),
				"kubectl get events -n "+v1alpha1.Namespace+" says more; --nodes chooses other nodes")
		}
	}
}

// list returns this benchmark's pods by name.
func (b *Bench) list(ctx context.Context) (map[string]*corev1.Pod, error) {
	ctx, cancel := b.Client.Call(ctx)
	defer cancel()
	pods, err := b.Client.Typed.CoreV1().Pods(v1alpha1.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: manifest.LabelBenchID + "=" + b.id})
	if err != nil {
		return nil, err
	}
	all := map[string]*corev1.Pod{}
	for i := range pods.Items {
		all[pods.Items[i].Name] = &pods.Items[i]
	}
	return all, nil
}

// standing says what a pod waits for, empty if for nothing; or why it will never be ready. A pod that has done its work
// is ready.
func standing(name string, pod *corev1.Pod) (waits string, err error) {
	switch {
	case pod == nil || pod.DeletionTimestamp != nil:
		return "", fmt.Errorf("pod %s was deleted by someone else", name)
	case pod.Status.Phase == corev1.PodSucceeded && pod.Labels[manifest.LabelBench] == manifest.BenchClient:
		return "", nil
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || crashed(pod):
		hint := "kubectl get events -n " + v1alpha1.Namespace + " says more; --nodes chooses other nodes"
		if pod.Spec.HostNetwork {
			hint = fmt.Sprintf("choose another node with --nodes, or free the ports %d, %d, %d and %d of node %s",
				manifest.PortUDP+manifest.HostOffset, manifest.PortTCP+manifest.HostOffset,
				manifest.PortSink+manifest.HostOffset, manifest.PortHTTP+manifest.HostOffset, pod.Spec.NodeName)
		}
		return "", engine.WithHint(fmt.Errorf("pod %s ended on node %s: %s", name, pod.Spec.NodeName, ended(pod)), hint)
	case conducted(pod):
		return "", nil
	}
	if cluster.PodReady(pod) {
		return "", nil
	}
	waits = fmt.Sprintf("pod %s is not ready on node %s", name, pod.Spec.NodeName)
	for _, status := range pod.Status.ContainerStatuses {
		if waiting := status.State.Waiting; waiting != nil {
			waits += strings.TrimRight(fmt.Sprintf(": %s %s", waiting.Reason, waiting.Message), " ")
		}
	}
	return waits, nil
}

// conducted reports whether a client has carried out its plan. Its worker runs on, and so the pod, which is not ready
// any more: it may never have been seen so.
func conducted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(status corev1.ContainerStatus) bool {
		end := status.State.Terminated
		return status.Name == manifest.BenchConductor && end != nil && end.ExitCode == 0
	})
}

// crashed reports whether a container of a pod has failed. No container is restarted, but the pod runs on while
// another container does.
func crashed(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(status corev1.ContainerStatus) bool {
		end := status.State.Terminated
		return end != nil && end.ExitCode != 0
	})
}

// ended says how a pod ended.
func ended(pod *corev1.Pod) string {
	text := strings.TrimSpace(pod.Status.Reason + " " + pod.Status.Message)
	for _, status := range pod.Status.ContainerStatuses {
		if end := status.State.Terminated; end != nil && end.ExitCode != 0 {
			text += strings.TrimRight(fmt.Sprintf(" %s: exit code %d, %s %s", status.Name, end.ExitCode,
				end.Reason, end.Message), " \n")
		}
	}
	return cmp.Or(strings.TrimSpace(text), string(pod.Status.Phase))
}

// refused adds what to do to the error of an object that the cluster's rules refuse.
func refused(err error) error {
	if _, hint := outage.Denied(err); hint != "" {
		return engine.WithHint(err, strings.ReplaceAll(hint, "NAME", v1alpha1.Namespace))
	}
	return err
}

// account waits for the namespace's ServiceAccount, without which no pod is admitted.
func (b *Bench) account(ctx context.Context) error {
	for end := time.Now().Add(accountWithin); ; {
		within, cancel := b.Client.Call(ctx)
		_, err := b.Client.Typed.CoreV1().ServiceAccounts(v1alpha1.Namespace).Get(within,
			"default", metav1.GetOptions{})
		cancel()
		// without the right to look, the pods say what is missing
		if !apierrors.IsNotFound(err) || time.Now().After(end) {
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
		return bench.Host{Echo: port(manifest.PortUDP), Accept: port(manifest.PortTCP), Sink: port(manifest.PortSink),
			HTTP: port(manifest.PortHTTP)}
	}
	near := b.Nodes[0].Name
	paths := []bench.Paths{{Name: bench.SameNode, Host: at(manifest.BenchNear), Within: near}}
	if len(b.Nodes) > 1 {
		return append(paths, bench.Paths{Name: bench.TwoNodes, Host: at(manifest.BenchFar)},
			bench.Paths{Name: bench.ToHost, Host: at(manifest.BenchFarHost)})
	}
	return append(paths, bench.Paths{Name: bench.OwnHost, Host: at(manifest.BenchNearHost), Within: near})
}

// addressed are the plans of a run with the addresses of the pods, by their parts, and of the Service.
func (b *Bench) addressed(ctx context.Context, pods map[string]*corev1.Pod) ([]bench.Plan, error) {
	ctx, cancel := b.Client.Call(ctx)
	defer cancel()
	service, err := b.Client.Typed.CoreV1().Services(v1alpha1.Namespace).Get(ctx,
		manifest.BenchName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	counters := map[string]string{}
	for _, part := range []string{manifest.BenchNearHost, manifest.BenchFarHost} {
		if pod := pods[part]; pod != nil {
			counters[pod.Spec.NodeName] = net.JoinHostPort(pod.Status.HostIP,
				strconv.Itoa(manifest.PortHTTP+manifest.HostOffset))
		}
	}
	return b.plans(b.paths(pods), net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(manifest.PortHTTP)),
		counters), nil
}

// measure carries out all runs, until the last one is done or the watch on the nodes stops the load.
func (b *Bench) measure(ctx context.Context, plans []bench.Plan) (*bench.Result, error) {
	result := &bench.Result{APIVersion: v1alpha1.APIVersion, Kind: "NetworkBench",
		Began: time.Now().UTC().Format(time.RFC3339), Bounds: b.Bounds, Cost: b.Cost(), Client: b.Nodes[0].Name,
		Tasks: tasks(plans), Counters: map[string]map[string]int64{}}
	for _, reading := range b.Readings {
		result.Carried = append(result.Carried, reading.Carried...)
	}
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
	var err error
	for run := 1; run <= b.Bounds.Runs; run++ {
		for i, plan := range plans {
			if err != nil || result.Stopped != "" || following.Err() != nil {
				break
			}
			plan.Run = run
			if i == 0 {
				err = b.once(following, plan, 0, result)
			} else {
				err = b.ruled(following, plan, b.Bounds.PolicyRules[i-1], result)
			}
		}
	}
	var hurt hurting
	if errors.As(context.Cause(following), &hurt) {
		result.Stopped, result.Harmed, err = hurt.Error(), true, nil
	}
	stop(nil)
	<-watched
	switch {
	case ctx.Err() != nil:
		result.Stopped, err = "it was interrupted", context.Cause(ctx)
	case err != nil:
		result.Stopped = err.Error()
	}
	result.Rows = bench.Rows(result.Tasks, result.Samples)
	result.Says = result.Words()
	return result, err
}

// ruled carries out a plan while there are so many rules of policy.
func (b *Bench) ruled(ctx context.Context, plan bench.Plan, rules int, result *bench.Result) (err error) {
	if b.unenforced {
		return nil
	}
	part := manifest.BenchNear
	if len(b.Nodes) > 1 {
		part = manifest.BenchFar
	}
	b.Note(fmt.Sprintf("run %d of %d: making %d rules of policy", plan.Run, plan.Runs, rules))
	defer func() {
		if ctx.Err() != nil { // the pods go first, so that the load ends at once: see Run
			return
		}
		err = errors.Join(err, b.unrule(ctx, manifest.LabelBenchID+"="+b.id))
	}()
	within, cancel := context.WithTimeout(ctx, policiesWithin)
	defer cancel()
	if err := b.make(within, manifest.BenchPolicies(part, b.id, manifest.BenchClientName(plan.Run, rules),
		rules)...); err != nil {
		return err
	}
	return b.once(ctx, plan, rules, result)
}

// once carries out a plan of a run, with a client of its own, which is removed again. It lives no longer than the plan:
// if this process ends, or loses the API server, the load ends soon.
func (b *Bench) once(ctx context.Context, plan bench.Plan, rules int, result *bench.Result) (err error) {
	text, err := json.Marshal(plan)
	if err != nil {
		return err
	}
	name, lasts := manifest.BenchClientName(plan.Run, rules), plan.Leash()
	defer func() {
		if ctx.Err() == nil { // else all are removed together
			err = errors.Join(err,
				b.remove(ctx, manifest.LabelBenchID+"="+b.id+","+manifest.LabelBench+"="+manifest.BenchClient))
		}
	}()
	b.leash = time.Now().Add(lasts + clientWithin)
	if err := b.make(ctx, manifest.BenchPod(b.Image, b.Nodes[0].Name, name, string(text), b.id,
		lasts)); err != nil {
		return err
	}
	if _, err := b.up(ctx, name); err != nil {
		return err
	}
	b.leash = time.Now().Add(lasts)
	within, cancel := context.WithTimeoutCause(ctx, lasts+lookWithin,
		fmt.Errorf("run %d did not end within %s", plan.Run, lasts))
	defer cancel()
	err = b.follow(within, name, func(line bench.Line) { b.take(result, line) })
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		return context.Cause(within)
	}
	return err
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
		b.unenforced = b.unenforced || strings.HasPrefix(s.Error, bench.NotEnforced)
		b.Note(said(result.Tasks[s.Task], s, b.Bounds.Runs))
	case line.Counters != nil: // of one run
		for node, rises := range line.Counters {
			if result.Counters[node] == nil {
				result.Counters[node] = map[string]int64{}
			}
			for name, rise := range rises {
				result.Counters[node][name] += rise
			}
		}
	case line.Note != "":
		if !slices.Contains(result.Notes, line.Note) { // each run says it
			result.Notes = append(result.Notes, line.Note)
		}
	case line.Stopped != "":
		result.Stopped, result.Harmed = line.Stopped, true
	}
}

// said is a sample as a line of progress.
func said(task bench.Task, s bench.Sample, runs int) string {
	text := fmt.Sprintf("run %d of %d: %s, %s: ", s.Run, runs, task.Path, task.Name())
	switch {
	case s.Error != "" && s.Value == 0:
		return text + s.Error
	case task.Kind == bench.Blast:
		return text + fmt.Sprintf("%.0f Mbit/s, %d of %d lost", s.Value, s.Sent-s.Arrived, s.Sent)
	case task.Kind == bench.Stream:
		return text + fmt.Sprintf("%.0f Mbit/s", s.Value)
	case s.Latency == nil:
		return text + fmt.Sprintf("%.0f/s", s.Value)
	}
	return text + fmt.Sprintf("%.0f/s, %d lost, p99 %s", s.Value, s.Latency.Lost(), s.Latency.P99)
}

// hurting is why the watch stops the load.
type hurting struct{ error }

// watch looks at the nodes under load until ctx ends. It returns why the load must stop.
func (b *Bench) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ends := make(chan error, len(b.Nodes))
	for i := range b.Nodes {
		go func() { ends <- b.watchNode(ctx, b.Nodes[i].Name) }()
	}
	for range b.Nodes {
		if why := <-ends; why != nil {
			return why
		}
	}
	return nil
}

// watchNode looks at one node.
func (b *Bench) watchNode(ctx context.Context, name string) error {
	for seen := time.Now(); outage.Sleep(ctx, lookEvery) == nil; {
		within, cancel := context.WithTimeout(ctx, lookWithin)
		live, err := b.Client.Typed.CoreV1().Nodes().Get(within, name, metav1.GetOptions{})
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case apierrors.IsNotFound(err):
			return hurting{fmt.Errorf("node %s was removed", name)}
		case err != nil && time.Since(seen) > blind-lookWithin:
			return hurting{fmt.Errorf("node %s could not be watched for %s: %w", name, blind, err)}
		case err != nil:
			continue
		}
		if why := unfit(live); why != "" {
			return hurting{fmt.Errorf("node %s %s", name, why)}
		}
		seen = time.Now()
	}
	return nil
}

// errNoEnd is of a log that ends before the client's last line.
var errNoEnd = errors.New("it ends without a result")

// follow passes the client's lines on until the last one. A log that breaks off is read again, without the lines that
// are known.
func (b *Bench) follow(ctx context.Context, name string, take func(bench.Line)) error {
	known := 0
	for broken := time.Now(); ; {
		before := known
		last, err := b.read(ctx, name, &known, take)
		if last {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if known > before {
			broken = time.Now()
		}
		if why := b.over(ctx, name); why != nil {
			return why
		}
		if time.Since(broken) > b.Bounds.Duration+unread {
			return engine.WithHint(fmt.Errorf("the log of pod %s cannot be read: %w", name, cmp.Or(err, errNoEnd)),
				"the API server must reach the kubelet, as for kubectl logs, and the user needs get on pods/log")
		}
		if err := outage.Sleep(ctx, lookEvery/2); err != nil {
			return err
		}
	}
}

// read reads the log from its begin. last is true if the client's last line was read.
func (b *Bench) read(ctx context.Context, name string, known *int, take func(bench.Line)) (last bool, err error) {
	log, err := b.Client.Typed.CoreV1().Pods(v1alpha1.Namespace).GetLogs(name,
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

// over is the error of a client that ended, or crashed, without its last line; nil while it runs.
func (b *Bench) over(ctx context.Context, name string) error {
	ctx, cancel := b.Client.Call(ctx)
	defer cancel()
	pod, err := b.Client.Typed.CoreV1().Pods(v1alpha1.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return errors.New("the client's pod was deleted before the benchmark was done")
	case err != nil:
		return nil // follow bounds how long that may last
	case pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded && !crashed(pod):
		return nil
	}
	return engine.WithHint(fmt.Errorf("the client's pod ended before the benchmark was done: %s", ended(pod)),
		"run it again; a pod that was evicted, or ran out of memory, is in kubectl get events -n "+v1alpha1.Namespace)
}
