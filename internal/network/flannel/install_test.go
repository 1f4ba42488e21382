package flannel_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/network/calico"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/cnitest"
	"github.com/theseus-cni/theseus/internal/network/flannel"
	"github.com/theseus-cni/theseus/internal/step"
)

// request is for flannel next to Calico, with another range than the manifest's.
func request(t *testing.T) cni.Request {
	return cni.Request{
		Manifest:  cnitest.Fixture(t, "flannel-manifest.yaml"),
		PodCIDR:   "198.19.0.0/20",
		Source:    calico.Driver{}.Detect(cnitest.Snapshot(t, cnitest.Fixture(t, "calico.yaml"))),
		NodeLabel: v1alpha1.LabelTarget,
	}
}

// TestInstallConf: the configuration sorts before the source's while both are there, and is the user's own at the end.
func TestInstallConf(t *testing.T) {
	for source, want := range map[string]step.ConfArgs{
		"05-calico.conflist": {Staged: "00-flannel.conflist.theseus", Active: "00-flannel.conflist"},
		"50-other.conflist":  {Staged: "10-flannel.conflist.theseus", Active: "10-flannel.conflist"},
	} {
		r := request(t)
		r.Source.Capabilities.ConfName = source
		target, err := flannel.Driver{}.Install(r)
		if err != nil {
			t.Fatal(err)
		}
		if target.Conf != want || target.Installation.Capabilities.ConfName != "10-flannel.conflist" {
			t.Errorf("beside %s it is %+v, and at the end %s",
				source, target.Conf, target.Installation.Capabilities.ConfName)
		}
	}
}

// TestInstallNextTo: another way to carry packets than the one that was tried is refused, whatever network it is.
func TestInstallNextTo(t *testing.T) {
	r := request(t)
	r.Source.Capabilities.Encapsulation = "ipip"
	if _, err := (flannel.Driver{}).Install(r); err == nil ||
		!strings.Contains(err.Error(), "not next to calico as it runs here (ipip)") {
		t.Errorf("beside IPIP: %v", err)
	}
	r.Source = nil
	if _, err := (flannel.Driver{}).Install(r); err != nil {
		t.Errorf("beside nothing: %v", err)
	}
}

// TestInstallDetected: what is installed is found again, as a change that was begun and then as a network in order.
func TestInstallDetected(t *testing.T) {
	target, err := flannel.Driver{}.Install(request(t))
	if err != nil {
		t.Fatal(err)
	}
	begun := flannel.Driver{}.Detect(cnitest.Snapshot(t, target.Objects))
	if begun == nil || len(begun.Problems) == 0 || !strings.Contains(begun.Problems[0], "one was begun here") ||
		begun.Capabilities.ConfName != "00-flannel.conflist" {
		t.Errorf("in the joint form: %+v", begun)
	}
	found := flannel.Driver{}.Detect(cnitest.Snapshot(t, cnitest.Fixture(t, "flannel-manifest.yaml")))
	if found == nil || len(found.Problems) > 0 {
		t.Fatalf("as the manifest has it: %+v", found)
	}
	found.PodCIDRs = target.Installation.PodCIDRs
	if masquerade := found.Capabilities.Masquerade; masquerade == nil ||
		!slices.Equal(masquerade.From, []string{"10.244.0.0/16"}) {
		t.Errorf("of the manifest's own range it masquerades %+v", masquerade)
	}
	found.Capabilities.Masquerade = target.Installation.Capabilities.Masquerade // the ranges differ
	found.Capabilities.Attachment = nil                                         // nobody was ever moved to it
	found.Parts, target.Installation.Parts = nil, nil
	if want, got := text(t, target.Installation), text(t, found); want != got {
		t.Errorf("installed was\n%s\nand found is\n%s", want, got)
	}
}

func text(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestInstallRefuses(t *testing.T) {
	set := func(kind string, value any,
		fields ...string) func([]unstructured.Unstructured) []unstructured.Unstructured {
		return func(all []unstructured.Unstructured) []unstructured.Unstructured {
			for i := range all {
				if all[i].GetKind() != kind {
					continue
				}
				if err := unstructured.SetNestedField(all[i].Object, value, fields...); err != nil {
					t.Fatal(err)
				}
			}
			return all
		}
	}
	netConf := func(json string) func([]unstructured.Unstructured) []unstructured.Unstructured {
		return set("ConfigMap", json, "data", "net-conf.json")
	}
	more := func(text string) func([]unstructured.Unstructured) []unstructured.Unstructured {
		return func(all []unstructured.Unstructured) []unstructured.Unstructured {
			return append(all, cnitest.Documents(t, []byte(text))...)
		}
	}
	without := func(kind string) func([]unstructured.Unstructured) []unstructured.Unstructured {
		return set(kind, "other", "metadata", "name")
	}
	for _, test := range []struct {
		name   string
		change func([]unstructured.Unstructured) []unstructured.Unstructured
		words  string
	}{
		{"nothing", func([]unstructured.Unstructured) []unstructured.Unstructured { return nil },
			"contains no DaemonSet that runs flannel"},
		{"no configuration", without("ConfigMap"), "or no ConfigMap kube-flannel-cfg"},
		{"nobody installs it", set("DaemonSet", []any{}, "spec", "template", "spec", "initContainers"),
			"no init container of DaemonSet kube-flannel-ds"},
		{"a policy agent",
			more("apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: kube-router, namespace: kube-system}\n"),
			"contains DaemonSet kube-system/kube-router in addition"},
		{"garbage", netConf("{"), "cannot be read"},
		{"a bridge that no node can have",
			set("ConfigMap", `{"plugins": [{"type": "flannel", "delegate": {"bridge": "a b"}}]}`,
				"data", "cni-conf.json"), "which no node can have"},
		{"host-gw", netConf(`{"Backend": {"Type": "host-gw"}}`), "not with host-gw"},
		{"IPv6", netConf(`{"EnableIPv6": true, "IPv6Network": "fd00::/48", "Backend": {"Type": "vxlan"}}`),
			"IPv4 only"},
		{"policies in the same pod", set("DaemonSet",
			[]any{map[string]any{"name": "kube-flannel", "image": "ghcr.io/flannel-io/flannel:v0.28.4"},
				map[string]any{"name": "kube-network-policies",
					"image": "registry.k8s.io/networking/kube-network-policies:v1.0.0"}}, "spec", "template", "spec",
			"containers"), "also runs kube-network-policies"},
		{"tables of its own", netConf(`{"EnableNFTables": true, "Backend": {"Type": "vxlan"}}`), "EnableNFTables"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := request(t)
			r.Manifest = test.change(r.Manifest)
			_, err := flannel.Driver{}.Install(r)
			refused, ok := errors.AsType[*cni.Refusal](err)
			if !ok || !strings.Contains(refused.Message, test.words) || refused.Hint == "" {
				t.Errorf("%v, without %q or a hint", err, test.words)
			}
		})
	}
}
