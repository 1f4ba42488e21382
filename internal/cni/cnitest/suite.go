package cnitest

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cni"
	"github.com/theseus-cni/theseus/internal/step"
)

// Case is a driver with what it is tried on.
type Case struct {
	Driver cni.Driver
	// Present is a cluster on this network, in order; Other a cluster on another one.
	Present, Other *cluster.Snapshot
	// Request installs it; without a manifest, Install must refuse.
	Request cni.Request
}

// Run holds a driver to the contract of cni.Driver.
func Run(t *testing.T, c Case) {
	t.Run("detect", func(t *testing.T) { detects(t, c) })
	t.Run("install", func(t *testing.T) { installs(t, c) })
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
	if caps.ConfName == "" || len(caps.HostLinks) == 0 || caps.Policy == "" || caps.CIDRSource == "" || caps.Encapsulation == "" {
		t.Errorf("capabilities lack something: %+v", caps)
	}
	if caps.Encapsulation == "vxlan" && (caps.VNI == 0 || caps.Port == 0 || caps.Overhead == 0) {
		t.Errorf("VXLAN without VNI, port or overhead: %+v", caps)
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
	residues(t, c.Driver.Residue(&target.Installation), target.Installation.HasAgent())
}

// idempotent: what was installed can be given to Install again (without the extras) and means the same.
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

func staged(t *testing.T, c Case, target *cni.Target) {
	t.Helper()
	if target.Conf.Staged == target.Conf.Active || target.Conf.Active == "" {
		t.Errorf("configuration is not staged: %+v", target.Conf)
	}
	for _, suffix := range []string{".conf", ".conflist", ".json"} {
		if strings.HasSuffix(target.Conf.Staged, suffix) {
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
	}
	if !gated {
		t.Errorf("the agent does not wait for the label %s", c.Request.NodeLabel)
	}
	if account > workload {
		t.Errorf("a workload (object %d) comes before a service account (object %d)", workload, account)
	}
}
