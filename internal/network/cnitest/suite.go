package cnitest

import (
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// Case is a driver with what it is tried on.
type Case struct {
	Driver cni.Driver
	// Present is a cluster on this network, in order; Other a cluster on another one.
	Present, Other *cluster.Snapshot
	// Request installs it; without a manifest, Install must refuse.
	Request cni.Request
	// Golden is the file that holds what Install makes of the manifest, as far as it differs; Update writes it again.
	Golden string
	Update bool
}

// Understood demands that a driver finds its network in a changed cluster, with a part of one problem or of what was
// never run with it, or with none where that is empty; check may demand more, or be nil.
func Understood(t *testing.T, driver cni.Driver, snapshot *cluster.Snapshot, problem string,
	check func(*cni.Installation) bool) {
	t.Helper()
	found := driver.Detect(snapshot)
	if found == nil {
		t.Fatal("not found")
	}
	problems := strings.Join(append(slices.Clone(found.Problems), found.Untried), "\n")
	if problem == "" && len(found.Problems) > 0 || !strings.Contains(problems, problem) {
		t.Errorf("problems are %q, not %q", problems, problem)
	}
	if check != nil && !check(found) {
		t.Errorf("not as expected: %+v", found)
	}
}

// ProblemOrAbsent demands that a driver names a part of one problem; where that is empty, that it finds no network.
func ProblemOrAbsent(t *testing.T, driver cni.Driver, snapshot *cluster.Snapshot, problem string) {
	t.Helper()
	found := driver.Detect(snapshot)
	if problem == "" {
		if found != nil {
			t.Errorf("found: %+v", found)
		}
		return
	}
	if found == nil || !strings.Contains(strings.Join(found.Problems, "\n"), problem) {
		t.Errorf("found %+v, and no problem %q", found, problem)
	}
}

// Run holds a driver to the contract of cni.Driver.
func Run(t *testing.T, c Case) {
	Detects(t, c)
	t.Run("install", func(t *testing.T) { installs(t, c) })
}

// Detects holds a driver to what the contract says of clusters.
func Detects(t *testing.T, c Case) {
	t.Run("detect", func(t *testing.T) { detects(t, c) })
	t.Run("pure", func(t *testing.T) { pure(t, c) })
	t.Run("health", func(t *testing.T) { ails(t, c) })
	t.Run("half", func(t *testing.T) { halves(t, c) })
	t.Run("next to another", func(t *testing.T) { beside(t, c) })
	t.Run("residue", func(t *testing.T) {
		found := c.Driver.Detect(c.Present)
		if found == nil {
			t.Fatal("not detected")
		}
		residues(t, c.Driver.Residue(found), found.HasAgent())
	})
}

func detects(t *testing.T, c Case) {
	if found := c.Driver.Detect(&cluster.Snapshot{}); found != nil {
		t.Errorf("found %s in an empty snapshot", found.CNI)
	}
	if found := c.Driver.Detect(c.Other); found != nil {
		t.Errorf("found %s in a cluster on another network: %v", found.CNI, found.Problems)
	}
	found := c.Driver.Detect(c.Present)
	if found == nil {
		t.Fatal("not found where it is")
	}
	if found.CNI != c.Driver.Name() {
		t.Errorf("calls itself %q, but its driver is %q", found.CNI, c.Driver.Name())
	}
	if len(found.Problems) > 0 {
		t.Errorf("problems in a cluster in order: %q", found.Problems)
	}
	described(t, found)
	if diff := cmp.Diff(found, c.Driver.Detect(c.Present)); diff != "" {
		t.Errorf("a second look finds something else:\n%s", diff)
	}
	if found.HasAgent() && !hasPart(found.Parts, found.Agent) {
		t.Errorf("parts lack the agent: %v", found.Parts)
	}
}

func described(t *testing.T, found *cni.Installation) {
	t.Helper()
	if found.HasAgent() && (found.Agent.Kind == "" || found.Agent.Namespace == "" || found.Selector == "") {
		t.Errorf("the agent is not named: %+v, selector %q", found.Agent, found.Selector)
	}
	if len(found.PodCIDRs) == 0 {
		t.Error("no pod CIDR")
	}
	for _, cidr := range found.PodCIDRs {
		if _, err := netip.ParsePrefix(cidr); err != nil {
			t.Errorf("pod CIDR: %v", err)
		}
	}
	caps := found.Capabilities
	if caps.ConfName == "" || len(caps.HostLinks) == 0 || caps.Policy == "" || caps.CIDRSource == "" ||
		caps.Encapsulation == "" {
		t.Errorf("capabilities lack something: %+v", caps)
	}
	if caps.Encapsulation == "vxlan" && (caps.VNI == 0 || caps.Port == 0 || caps.Overhead == 0) {
		t.Errorf("VXLAN without VNI, port or overhead: %+v", caps)
	}
	if caps.Encapsulation == "none" && (caps.VNI != 0 || caps.Port != 0 || caps.Overhead != 0) ||
		caps.WholePort && caps.Encapsulation != "vxlan" {
		t.Errorf("capabilities contradict each other: %+v", caps)
	}
	if caps.Port < 0 || caps.Port > 65535 || caps.MTU < 0 || caps.MTU > 65535 {
		t.Errorf("no packet has such a port or length: %+v", caps)
	}
	if strings.ContainsAny(caps.ConfName, "/*") ||
		!slices.Contains([]string{".conf", ".conflist", ".json"}, path.Ext(caps.ConfName)) {
		t.Errorf("a runtime does not read %q", caps.ConfName)
	}
}

// pure: Detect changes nothing of what it looks at, and the order in which a cluster lists its objects decides nothing.
func pure(t *testing.T, c Case) {
	before := asJSON(t, c.Present)
	found := c.Driver.Detect(c.Present)
	c.Driver.Residue(found)
	if diff := cmp.Diff(before, asJSON(t, c.Present)); diff != "" {
		t.Errorf("detection changes the snapshot:\n%s", diff)
	}
	turned := clone(t, c.Present)
	slices.Reverse(turned.Nodes)
	slices.Reverse(turned.Pods)
	slices.Reverse(turned.DaemonSets)
	slices.Reverse(turned.Deployments)
	slices.Reverse(turned.ConfigMaps)
	slices.Reverse(turned.Other)
	slices.Reverse(turned.Facts)
	again := c.Driver.Detect(turned)
	if again == nil {
		t.Fatal("not found when the same objects come in another order")
	}
	by := cmpopts.SortSlices(func(a, b step.Ref) int { return strings.Compare(a.String(), b.String()) })
	if diff := cmp.Diff(found, again, by, cmpopts.SortSlices(strings.Compare)); diff != "" {
		t.Errorf("the order of a cluster's objects matters:\n%s", diff)
	}
}

// ails: an agent that is not ready everywhere is a problem, and so is one that is gone and left its objects.
func ails(t *testing.T, c Case) {
	found := c.Driver.Detect(c.Present)
	if !found.HasAgent() {
		return // nothing of it runs
	}
	ill := clone(t, c.Present)
	ill.DaemonSet(found.Agent.Namespace, found.Agent.Name).Status.NumberReady = 0
	got := c.Driver.Detect(ill)
	if got == nil || !slices.ContainsFunc(got.Problems, func(p string) bool {
		return strings.Contains(p, found.Agent.Name) && strings.Contains(p, "ready on 0 of")
	}) {
		t.Errorf("the agent is ready nowhere, and this is what is found: %+v", got)
	}
	gone := clone(t, c.Present)
	gone.DaemonSets = slices.DeleteFunc(gone.DaemonSets, func(d appsv1.DaemonSet) bool {
		return d.Name == found.Agent.Name
	})
	switch got := c.Driver.Detect(gone); {
	case got == nil:
		t.Error("the agent was deleted, and the driver does not report the rest")
	case len(got.Problems) == 0:
		t.Errorf("the agent was deleted, and that is no problem: %+v", got)
	}
}

// halves: where one object is missing, whichever that is, the network is still found, and either the same is said of it
// or there is a problem.
func halves(t *testing.T, c Case) {
	whole := c.Driver.Detect(c.Present)
	without(t, c.Present, func(name string, half *cluster.Snapshot) {
		found := c.Driver.Detect(half)
		if found == nil {
			t.Errorf("without %s it is not found", name)
			return
		}
		if diff := cmp.Diff(whole, found, theRest, cmpopts.IgnoreFields(cni.Installation{}, "Written")); diff != "" &&
			len(found.Problems) == 0 {
			t.Errorf("without %s something else is said, and no problem:\n%s", name, diff)
		}
	})
}

// theRest are the fields that another network in the cluster, or a part that is gone, may change.
var theRest = cmpopts.IgnoreFields(cni.Installation{}, "Problems", "Parts", "PolicyAgent", "Capabilities.Policy",
	"Capabilities.PolicyMarks")

// without gives a snapshot again and again, each time without one of its objects.
func without(t *testing.T, s *cluster.Snapshot, try func(name string, half *cluster.Snapshot)) {
	t.Helper()
	for i := range s.DaemonSets {
		half := clone(t, s)
		half.DaemonSets = slices.Delete(half.DaemonSets, i, i+1)
		try("DaemonSet "+s.DaemonSets[i].Name, half)
	}
	for i := range s.Deployments {
		half := clone(t, s)
		half.Deployments = slices.Delete(half.Deployments, i, i+1)
		try("Deployment "+s.Deployments[i].Name, half)
	}
	for i := range s.ConfigMaps {
		half := clone(t, s)
		half.ConfigMaps = slices.Delete(half.ConfigMaps, i, i+1)
		try("ConfigMap "+s.ConfigMaps[i].Name, half)
	}
	for i := range s.Other {
		half := clone(t, s)
		half.Other = slices.Delete(half.Other, i, i+1)
		try(s.Other[i].GetKind()+" "+s.Other[i].GetName(), half)
	}
}

// beside: another network in the same cluster does not change the findings about this one.
func beside(t *testing.T, c Case) {
	mixed, other := clone(t, c.Present), clone(t, c.Other)
	mixed.DaemonSets = append(other.DaemonSets, mixed.DaemonSets...)
	mixed.Deployments = append(other.Deployments, mixed.Deployments...)
	mixed.ConfigMaps = append(other.ConfigMaps, mixed.ConfigMaps...)
	mixed.Other = append(other.Other, mixed.Other...)
	alone := c.Driver.Detect(c.Present)
	begun := clone(t, mixed) // the other's agents are gone, or did not come yet
	begun.DaemonSets = clone(t, c.Present).DaemonSets
	for name, snapshot := range map[string]*cluster.Snapshot{"whole": mixed, "without its agents": begun} {
		found := c.Driver.Detect(snapshot)
		if found == nil {
			t.Fatalf("not found next to another network, %s", name)
		}
		if diff := cmp.Diff(alone, found, theRest); diff != "" {
			t.Errorf("another network in the cluster, %s, changes what is said of this one:\n%s", name, diff)
		}
	}
}

func asJSON(t *testing.T, value any) string {
	t.Helper()
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func clone(t *testing.T, s *cluster.Snapshot) *cluster.Snapshot {
	t.Helper()
	copied := &cluster.Snapshot{}
	if err := json.Unmarshal([]byte(asJSON(t, s)), copied); err != nil {
		t.Fatal(err)
	}
	return copied
}

// Same compares a text with a file, or writes it.
func Same(t *testing.T, file, got string, update bool) {
	t.Helper()
	if update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v: run the test with -update", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs; if that is meant, run the test with -update:\n%s", file, diff)
	}
}

func hasPart(parts []step.Ref, wanted step.Ref) bool {
	for _, part := range parts {
		if part == wanted {
			return true
		}
	}
	return false
}

func installs(t *testing.T, c Case) {
	if len(c.Request.Manifest) == 0 {
		_, err := c.Driver.Install(c.Request)
		var refused *cni.Refusal
		if !errors.As(err, &refused) || refused.Hint == "" {
			t.Fatalf("without a manifest the answer must be a refusal with a hint, not: %v", err)
		}
		return
	}
	before := len(c.Request.Manifest)
	copies := c.Request
	copies.Manifest = nil
	for i := range c.Request.Manifest {
		copies.Manifest = append(copies.Manifest, *c.Request.Manifest[i].DeepCopy())
	}
	target, err := c.Driver.Install(c.Request)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(copies.Manifest, c.Request.Manifest); diff != "" || before != len(c.Request.Manifest) {
		t.Errorf("the caller's manifest was changed:\n%s", diff)
	}
	again, err := c.Driver.Install(c.Request)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(target, again); diff != "" {
		t.Errorf("a second installation differs:\n%s", diff)
	}
	described(t, &target.Installation)
	staged(t, c, target)
	idempotent(t, c, target)
	cleans(t, c.Driver.Residue(&target.Installation), target)
	if c.Golden != "" {
		Same(t, c.Golden, installed(t, c.Request.Manifest, target), c.Update)
	}
	residues(t, c.Driver.Residue(&target.Installation), target.Installation.HasAgent())
}

// idempotent: Install accepts its own output (without the extras), and gives the same result.
func idempotent(t *testing.T, c Case, target *cni.Target) {
	t.Helper()
	request := c.Request
	request.Manifest = append(append(request.Manifest[:0:0], target.Definitions...), target.Objects...)
	again, err := c.Driver.Install(request)
	if err != nil {
		t.Fatalf("its own output is refused: %v", err)
	}
	if diff := cmp.Diff(target.Objects, again.Objects); diff != "" {
		t.Errorf("installing its own output changes it:\n%s", diff)
	}
}

// cleans: what an installation makes is what its residue and its parts name.
func cleans(t *testing.T, residue step.Residue, target *cni.Target) {
	t.Helper()
	own := target.Installation.Capabilities.ConfName // another name, to sort first, is the strategy's to clean
	made := step.Residue{Links: target.Installation.Capabilities.HostLinks,
		ConfFiles: []string{own, own + cni.StagedSuffix}, Routes: target.Installation.PodCIDRs}
	named := lists(residue)
	for kind, names := range lists(made) {
		for _, name := range names {
			if !slices.ContainsFunc(named[kind], func(pattern string) bool {
				return step.Matches([]string{pattern}, strings.TrimSuffix(name, "*")) || pattern == name
			}) {
				t.Errorf("it makes the %s %s, and its residue does not name it: %q", kind, name, named[kind])
			}
		}
	}
	for _, list := range [][]unstructured.Unstructured{target.Objects, target.Definitions} {
		for i := range list {
			ref := step.RefOf(&list[i])
			if !hasPart(target.Installation.Parts, ref) && !slices.Contains(target.Discard, ref) {
				t.Errorf("it applies %s, which is none of its parts", ref)
			}
		}
	}
}

func staged(t *testing.T, c Case, target *cni.Target) {
	t.Helper()
	if target.Conf.Staged == target.Conf.Active || target.Conf.Active == "" {
		t.Errorf("configuration is not staged: %+v", target.Conf)
	}
	for _, suffix := range []string{".conf", ".conflist", ".json"} {
		// nor one in a folder
		if strings.HasSuffix(target.Conf.Staged, suffix) && !strings.Contains(target.Conf.Staged, "/") {
			t.Errorf("a runtime would read the staged configuration %s", target.Conf.Staged)
		}
	}
	if source := c.Request.Source; source != nil && target.Conf.Active >= source.Capabilities.ConfName {
		t.Errorf("%s would not be read before %s", target.Conf.Active, source.Capabilities.ConfName)
	}
	gated := false
	account, workload := -1, -1
	for i := range target.Objects {
		object := &target.Objects[i]
		if object.GetKind() == "CustomResourceDefinition" {
			t.Errorf("%s belongs to the definitions", object.GetName())
		}
		if object.GetLabels()[v1alpha1.LabelManaged] != "true" {
			t.Errorf("%s %s is not labelled", object.GetKind(), object.GetName())
		}
		switch object.GetKind() {
		case "ServiceAccount":
			account = i
		case "DaemonSet", "Deployment":
			if workload < 0 {
				workload = i
			}
		}
		if step.RefOf(object) == target.Installation.Agent {
			selector, _, _ := unstructured.NestedStringMap(object.Object, "spec", "template", "spec", "nodeSelector")
			gated = selector[c.Request.NodeLabel] == "true"
		}
		if maker := target.Installation.Maker; maker != nil && step.RefOf(object) == maker.Ref {
			selector, _, _ := unstructured.NestedStringMap(object.Object, maker.NodeSelector...)
			gated = selector[c.Request.NodeLabel] == "true" && i == len(target.Objects)-1
		}
	}
	if !gated {
		t.Errorf("the agent does not wait for the label %s", c.Request.NodeLabel)
	}
	if account > workload {
		t.Errorf("a workload (object %d) comes before a service account (object %d)", workload, account)
	}
}
