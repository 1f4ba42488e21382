package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/proof/path"
	"github.com/theseus-cni/theseus/internal/step"
)

// Measured has the facts of a plan about its networks that the choice of paths depends on.
type Measured struct {
	// FullSize is the payload in bytes that fills the pods' MTU; 0 disables full-size probes.
	FullSize int
	// Denied names the networks ("old", "new") on which NetworkPolicy is enforced.
	Denied map[string]bool
	// Interval is the time between two probes on the paths with the highest rate; 0 means the default.
	Interval time.Duration
	// Outside are the user's responders outside of the cluster; if empty, the API server's address is used.
	Outside []path.Responder
	// OutsideEvery is the time between two probes that leave the cluster; 0 means the default.
	OutsideEvery time.Duration
	// NodesOutside names the networks that treat traffic from pods to other nodes' addresses like traffic that leaves
	// the cluster.
	NodesOutside map[string]bool
	// Local measures what answers on a pod's own node alone, as guards do. HostPorts says that the probe pods have
	// ports of their nodes, and LocalDNS is the name server of every node for its own pods, as host:port; empty for
	// none.
	Local     bool
	HostPorts bool
	LocalDNS  string
	// Compared says that gates compare nodes, for which every report needs its round trips.
	Compared bool
}

// grace is how long paths that a cluster may lack (path.Silent) may take to answer when all others do, and graceReports
// the same in reports.
const (
	grace        = 10 * time.Second
	graceReports = 3
)

// setPaths waits until the Services have the existing probe pods as endpoints, updates the probe plans accordingly, and
// waits until every path is established: its source reports on its current plan, and has received answers if any are
// expected.
func (a *Actor) setPaths(ctx context.Context, set step.PathSet) (json.RawMessage, error) {
	topology, err := a.topology(ctx, set)
	if err != nil {
		return nil, err
	}
	if err := a.waitOut(ctx, func() (string, error) { return a.unserved(ctx, &topology) }); err != nil {
		return nil, err
	}
	plans, err := a.writePaths(ctx, path.Build(topology))
	if err != nil {
		return nil, err
	}
	every := path.News(a.reported(len(plans)).every)
	stopped := a.Clock.Now().Add(stopWait + every)
	var silent []path.Silence
	var since time.Time // only paths that a cluster may lack have not answered
	err = a.waitOut(ctx, func() (string, error) {
		// what is missing in older reports is waited for, and what they have stays
		reports, err := a.reportsWithin(ctx, waitAge)
		if err != nil {
			return "", err
		}
		missing := unestablished(plans, reports, a.Clock.Now().Before(stopped))
		if missing == "" || !a.Measured.Local { // only a guard goes on without paths
			return missing, nil
		}
		left, quiet := path.Silent(pathsOf(plans), answered(plans, reports))
		switch {
		case len(quiet) == 0:
			return missing, nil
		case unestablished(only(plans, left), reports, false) != "":
			since = time.Time{}
			return missing, nil
		case since.IsZero():
			since = a.Clock.Now()
		}
		if a.Clock.Now().Sub(since) < max(grace, graceReports*every) {
			return missing, nil
		}
		for _, one := range quiet {
			if a.Note != nil {
				a.Note("not measured: " + one.String())
			}
		}
		silent = append(silent, quiet...)
		plans, err = a.writePaths(ctx, left)
		return missing, err
	})
	if err != nil {
		return nil, err
	}
	if a.Measured.Local && len(set.Old)+len(set.New) == 0 { // nodes may have paths to the outside all the same
		if err := a.unjoin(ctx); err != nil {
			return nil, err
		}
	}
	return jsonOf(Paths{Plans: len(plans), Paths: len(pathsOf(plans)), Silent: silent}), nil
}

// Paths is what came of setting paths, for the journal.
type Paths struct {
	Plans int `json:"plans"`
	Paths int `json:"paths"`
	// Silent are the paths that did not answer, that a cluster may lack, and that so are not measured.
	Silent []path.Silence `json:"silent,omitempty"`
}

// answered says whether a path was answered, as the current reports of its source have it.
func answered(plans []v1alpha1.ProbePlan, reports []v1alpha1.ProbeReport) func(id string) bool {
	generations, got := map[string]int64{}, map[string]bool{}
	for i := range plans {
		generations[plans[i].Name] = plans[i].Spec.Generation
	}
	for i := range reports {
		for _, result := range reports[i].Status.Paths {
			got[result.ID] = result.Sent > 0 && reports[i].Status.Generation == generations[reports[i].Name]
		}
	}
	return func(id string) bool { return got[id] }
}

// only are plans without the paths that are not among some.
func only(plans []v1alpha1.ProbePlan, left []v1alpha1.Path) []v1alpha1.ProbePlan {
	stay := map[string]bool{}
	for i := range left {
		stay[left[i].ID] = true
	}
	plans = slices.Clone(plans)
	for i := range plans {
		plans[i].Spec.Paths = slices.DeleteFunc(slices.Clone(plans[i].Spec.Paths),
			func(one v1alpha1.Path) bool { return !stay[one.ID] })
	}
	return plans
}

// waitOut polls until nothing is missing, and reports what is.
func (a *Actor) waitOut(ctx context.Context, asks func() (missing string, err error)) error {
	for said := ""; ; {
		missing, err := asks()
		if err != nil || missing == "" {
			return err
		}
		if missing != said && a.Note != nil {
			a.Note("waiting: " + missing)
			said = missing
		}
		if err := a.Clock.Sleep(ctx, poll); err != nil {
			return fmt.Errorf("%s (%w)", missing, err)
		}
	}
}

// unserved names a probe pod that is not yet an endpoint of its Services; empty if there is none. kube-proxies follow
// later: the warm-up of the paths through Services covers that. If the API server has no EndpointSlices, it is not
// checked.
func (a *Actor) unserved(ctx context.Context, t *path.Topology) (string, error) {
	for _, network := range []string{path.Old, path.New} {
		if t.Services[network] == "" {
			continue
		}
		names := []string{manifest.ProbeServiceName(network)}
		if t.NodePorts[network] > 0 {
			names = append(names, manifest.ProbeNodePortName(network))
		}
		if network == path.Old && t.Local.Service != "" {
			names = append(names, manifest.ProbeLocalName(network))
		}
		if network == path.Old && t.Local.NodePort > 0 {
			names = append(names, manifest.ProbeLocalPortName(network))
		}
		for _, name := range names {
			missing, err := a.unservedBy(ctx, name,
				map[string]map[string]string{path.Old: t.Old, path.New: t.New}[network])
			if missing != "" || apierrors.IsNotFound(err) {
				return missing, nil
			}
			if err != nil {
				return "", err
			}
		}
	}
	return "", nil
}

// unservedBy names the node of a network's probe pod that is not an endpoint of a Service.
func (a *Actor) unservedBy(ctx context.Context, service string, pods map[string]string) (string, error) {
	found, err := a.Typed.DiscoveryV1().EndpointSlices(v1alpha1.Namespace).List(ctx,
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + service})
	if err != nil {
		return "", err
	}
	served := map[string]bool{}
	for i := range found.Items {
		for _, endpoint := range found.Items[i].Endpoints {
			for _, address := range endpoint.Addresses {
				served[address] = endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready
			}
		}
	}
	for _, node := range slices.Sorted(maps.Keys(pods)) {
		if !served[pods[node]] {
			return fmt.Sprintf("the probe pod of %[2]s is not an endpoint of the Service %[1]s yet", service, node), nil
		}
	}
	return "", nil
}

// stopWait is how long to wait for sources that must stop measuring, because their targets may be removed then. A node
// that is down does not report that it has stopped.
const stopWait = 10 * time.Second

// unestablished names a path that has not been answered yet although it should be, a missing report, and, if requested,
// a source that still measures paths that were removed. Empty if there is none.
func unestablished(plans []v1alpha1.ProbePlan, reports []v1alpha1.ProbeReport, stopping bool) string {
	status := map[string]v1alpha1.ProbeReportStatus{}
	for _, report := range reports {
		status[report.Name] = report.Status
	}
	missing, example, silent, busy := 0, "", "", ""
	for _, plan := range plans {
		report, reported := status[plan.Name]
		switch {
		case len(plan.Spec.Paths) == 0:
			if stopping && reported && report.Generation != plan.Spec.Generation {
				busy = plan.Name + " has not stopped measuring"
			}
		case !reported:
			silent = "; " + plan.Name + " has reported nothing"
		case report.Generation != plan.Spec.Generation:
			silent = fmt.Sprintf("; %s reports on plan %d instead of %d",
				plan.Name, report.Generation, plan.Spec.Generation)
			report.Paths = nil
		}
		counted := map[string]bool{}
		for _, result := range report.Paths {
			counted[result.ID] = result.Sent > 0
		}
		for _, one := range plan.Spec.Paths {
			// The result of a denied probe is known only after its timeout, for which every gate waits.
			if !counted[one.ID] && !(one.Denied && report.Paths != nil) {
				missing++
				example = one.ID
			}
		}
	}
	if missing == 0 {
		return busy
	}
	return fmt.Sprintf("%d of %d paths have not answered yet, such as %s%s",
		missing, len(pathsOf(plans)), example, silent)
}

// writePaths stores each node's paths under a new generation, unless they are unchanged, and returns the plans of all
// nodes. A node without paths keeps an empty plan, so that its generations keep increasing.
func (a *Actor) writePaths(ctx context.Context, paths []v1alpha1.Path) ([]v1alpha1.ProbePlan, error) {
	plans, err := a.probePlans(ctx)
	if err != nil {
		return nil, err
	}
	wanted := map[string][]v1alpha1.Path{}
	paths = keepPace(paths, pathsOf(plans))
	for _, one := range paths {
		wanted[one.Source.Node] = append(wanted[one.Source.Node], one)
	}
	every := a.reported(len(wanted))
	for i := range plans {
		name := plans[i].Name
		if !slices.Equal(plans[i].Spec.Paths, wanted[name]) {
			plans[i] = planOf(name, plans[i].Spec.Generation+1, wanted[name], every)
			err = errors.Join(err, a.writePlan(ctx, plans[i]))
		}
		delete(wanted, name)
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		plans = append(plans, planOf(name, 1, wanted[name], every))
		err = errors.Join(err, a.writePlan(ctx, plans[len(plans)-1]))
	}
	return plans, err
}

// keepPace keeps paths unchanged that differ from the previous ones only in their interval: when nodes join or leave, a
// path may move to another ring, and a new interval would restart its count, so a gate could not compare it with
// earlier reports.
func keepPace(paths, before []v1alpha1.Path) []v1alpha1.Path {
	measured := make(map[string]v1alpha1.Path, len(before))
	for _, one := range before {
		measured[one.ID] = one
	}
	kept := slices.Clone(paths)
	for i := range kept {
		same := kept[i]
		same.IntervalMillis = measured[same.ID].IntervalMillis
		if same == measured[same.ID] {
			kept[i] = same
		}
	}
	return kept
}

// reports is how often a node reports, and how often in full.
type reports struct{ every, full time.Duration }

// reported is how often each of so many nodes reports.
func (a *Actor) reported(nodes int) reports {
	if a.Measured.Compared {
		return reports{every: path.ComparedEvery(nodes)}
	}
	return reports{every: path.ReportEvery(nodes), full: path.FullEvery(nodes)}
}

func planOf(node string, generation int64, paths []v1alpha1.Path, every reports) v1alpha1.ProbePlan {
	return v1alpha1.ProbePlan{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "ProbePlan"},
		ObjectMeta: metav1.ObjectMeta{Name: node, Namespace: v1alpha1.Namespace,
			Labels: map[string]string{v1alpha1.LabelManaged: "true"}},
		Spec: v1alpha1.ProbePlanSpec{Generation: generation, Paths: append([]v1alpha1.Path{}, paths...),
			ReportMillis: every.every.Milliseconds(), FullMillis: every.full.Milliseconds()},
	}
}

// writePlanOver stores a plan in place of another one, unless that one was changed meanwhile: then it fails.
func (a *Actor) writePlanOver(ctx context.Context, plan, former v1alpha1.ProbePlan) error {
	plan.ResourceVersion = former.ResourceVersion
	return a.writePlan(ctx, plan)
}

func (a *Actor) writePlan(ctx context.Context, plan v1alpha1.ProbePlan) error {
	_, err := a.writtenPlan(ctx, plan)
	return err
}

// writtenPlan writes a plan, and returns what the cluster keeps of it.
func (a *Actor) writtenPlan(ctx context.Context, plan v1alpha1.ProbePlan) (*unstructured.Unstructured, error) {
	content, err := encode(&plan)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{Object: content}
	unstructured.RemoveNestedField(object.Object, "metadata", "creationTimestamp")
	return a.apply(ctx, object, false)
}

// topology reads the endpoints between which to measure.
func (a *Actor) topology(ctx context.Context, set step.PathSet) (path.Topology, error) {
	t := a.Measured.topology()
	t.Leaving = map[string]bool{path.New: len(set.WithoutNew) > 0}
	nodes, err := a.Typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return t, err
	}
	for i := range nodes.Items {
		if slices.Contains(set.Leaving, nodes.Items[i].Name) {
			continue
		}
		t.Nodes = append(t.Nodes, path.Node{Name: nodes.Items[i].Name, Address: internalIP(&nodes.Items[i])})
	}
	if err := a.probePods(ctx, set, &t); err != nil {
		return t, err
	}
	for network, pods := range map[string]map[string]string{path.Old: t.Old, path.New: t.New} {
		if len(pods) == 0 || t.Leaving[network] {
			continue
		}
		if err := a.probeService(ctx, network, &t); err != nil {
			return t, err
		}
	}
	if a.Measured.Local && len(t.Old) > 0 {
		if err := a.localServices(ctx, &t); err != nil {
			return t, err
		}
	}
	dns, err := a.Typed.CoreV1().Services("kube-system").Get(ctx, "kube-dns", metav1.GetOptions{})
	t.Query = "kubernetes.default.svc.cluster.local."
	if err == nil && dns.Spec.ClusterIP != "" {
		t.DNS = net.JoinHostPort(dns.Spec.ClusterIP, "53")
	}
	if apierrors.IsNotFound(err) {
		err = nil // a cluster without this object has no such path
	}
	if err == nil {
		t.Outside, err = a.responders(ctx)
	}
	return t, err
}

// probePods fills in the addresses of the probe pods that a set names.
func (a *Actor) probePods(ctx context.Context, set step.PathSet, t *path.Topology) error {
	pods, err := a.podsOn(ctx, "", v1alpha1.Namespace, v1alpha1.LabelProbe)
	if err != nil {
		return err
	}
	addresses := map[string]map[string]string{path.Old: {}, path.New: {}}
	ready := map[string][]string{}
	for i := range pods {
		network := pods[i].Labels[v1alpha1.LabelProbe]
		if pods[i].DeletionTimestamp == nil && cluster.PodReady(&pods[i]) && addresses[network] != nil {
			addresses[network][pods[i].Spec.NodeName] = pods[i].Status.PodIP
			ready[network] = append(ready[network], pods[i].Spec.NodeName)
			t.Leaving[network] = t.Leaving[network] || slices.Contains(set.Leaving, pods[i].Spec.NodeName)
		}
	}
	oldNodes, newNodes := set.Resolve(ready[path.Old], ready[path.New])
	for _, side := range []struct {
		network string
		nodes   []string
		into    map[string]string
	}{{path.Old, oldNodes, t.Old}, {path.New, newNodes, t.New}} {
		slices.Sort(side.nodes)
		for _, node := range side.nodes {
			address, ok := addresses[side.network][node]
			if !ok {
				return fmt.Errorf("node %s has no ready probe pod on the %s network", node, side.network)
			}
			side.into[node] = address
		}
	}
	return nil
}

// probeService fills in the cluster address of a network's Service, and the TCP node ports of the other.
func (a *Actor) probeService(ctx context.Context, network string, t *path.Topology) error {
	services := a.Typed.CoreV1().Services(v1alpha1.Namespace)
	service, err := services.Get(ctx, manifest.ProbeServiceName(network), metav1.GetOptions{})
	if err == nil {
		t.Services[network] = service.Spec.ClusterIP
		service, err = services.Get(ctx, manifest.ProbeNodePortName(network), metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	t.NodePorts[network], t.SecondNodePorts[network] = nodePorts(service)
	return nil
}

// nodePorts are the TCP node ports of a Service of the probes: that of the probers, and that of second responders; 0
// where there is none.
func nodePorts(service *corev1.Service) (first, second int) {
	for _, port := range service.Spec.Ports {
		switch {
		case port.Protocol != corev1.ProtocolTCP:
		case port.Port == manifest.PortTCP:
			first = int(port.NodePort)
		case port.Port == manifest.PortTCP+manifest.SecondOffset:
			second = int(port.NodePort)
		}
	}
	return first, second
}

// localServices fills in the Services that lead only to the probe pod of the same node.
func (a *Actor) localServices(ctx context.Context, t *path.Topology) error {
	services := a.Typed.CoreV1().Services(v1alpha1.Namespace)
	inside, err := services.Get(ctx, manifest.ProbeLocalName(path.Old), metav1.GetOptions{})
	if err == nil {
		t.Local.Service = inside.Spec.ClusterIP
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	port, err := services.Get(ctx, manifest.ProbeLocalPortName(path.Old), metav1.GetOptions{})
	if err == nil {
		t.Local.NodePort, t.Local.SecondNodePort = nodePorts(port)
	}
	if apierrors.IsNotFound(err) { // the plan of an earlier release has none
		err = nil
	}
	return err
}

func internalIP(node *corev1.Node) string {
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return address.Address
		}
	}
	return ""
}
