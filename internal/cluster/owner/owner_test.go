package owner

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// objects parses documents, each on a line.
func objects(t *testing.T, lines string) []unstructured.Unstructured {
	t.Helper()
	var all []unstructured.Unstructured
	for line := range strings.Lines(strings.TrimSpace(lines)) {
		var one unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(line), &one.Object); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

// TestSuspend: the commands begin with what would resume the others, each once, whoever deploys whom.
func TestSuspend(t *testing.T) {
	d := Deploying(objects(t, `
{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: net, namespace: argocd, ownerReferences: [{apiVersion: argoproj.io/v1alpha1, kind: ApplicationSet, name: set, controller: true}]}, spec: {syncPolicy: {automated: {selfHeal: true, prune: false}}}}
{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: root, namespace: argocd}, spec: {syncPolicy: {automated: {}}}, status: {resources: [{group: argoproj.io, kind: Application, namespace: argocd, name: net}, {group: argoproj.io, kind: Application, namespace: argocd, name: root}]}}
{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: all, namespace: flux-system}, spec: {suspend: true}, status: {inventory: {entries: [{id: net_flannel_helm.toolkit.fluxcd.io_HelmRelease}]}}}
{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: flannel, namespace: net}}
`))
	for _, test := range []struct {
		of         Key
		want, back []string
	}{
		{Key{"argoproj.io", "Application", "argocd", "net"}, []string{
			`kubectl -n argocd patch applicationsets.argoproj.io set --type merge -p '{"spec":{"syncPolicy":{"applicationsSync":"create-only"}}}'`,
			`kubectl -n argocd patch applications.argoproj.io root --type merge -p '{"spec":{"syncPolicy":{"automated":null}}}'`,
			`kubectl -n argocd patch applications.argoproj.io net --type merge -p '{"spec":{"syncPolicy":{"automated":null}}}'`},
			[]string{
				`kubectl -n argocd patch applicationsets.argoproj.io set --type merge -p '{"spec":{"syncPolicy":{"applicationsSync":null}}}'`,
				`kubectl -n argocd patch applications.argoproj.io root --type merge -p '{"spec":{"syncPolicy":{"automated":{}}}}'`,
				`kubectl -n argocd patch applications.argoproj.io net --type merge -p '{"spec":{"syncPolicy":{"automated":{"prune":false,"selfHeal":true}}}}'`}},
		{Key{"helm.toolkit.fluxcd.io", "HelmRelease", "net", "flannel"}, []string{
			`kubectl -n net patch helmreleases.helm.toolkit.fluxcd.io flannel --type merge -p '{"spec":{"suspend":true}}'`},
			[]string{
				`kubectl -n net patch helmreleases.helm.toolkit.fluxcd.io flannel --type merge -p '{"spec":{"suspend":null}}'`}},
		{Key{"argoproj.io", "Application", "argocd", "absent"}, nil, nil},
	} {
		var do, back []string
		for _, command := range d.Suspend(test.of) {
			do, back = append(do, command.Do), append(back, command.Back)
		}
		if diff := cmp.Diff(test.want, do) + cmp.Diff(test.back, back); diff != "" {
			t.Errorf("%s: %s", test.of, diff)
		}
	}
}

// TestInstance: the label app.kubernetes.io/instance names an Application only if that deploys the object, and not if a
// chart set it, the Application deploys elsewhere, or another mark names another one. A parent that tracks its
// Applications by it counts.
func TestInstance(t *testing.T) {
	d := Deploying(objects(t, `
{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: net, namespace: argocd, labels: {app.kubernetes.io/instance: root}}, spec: {destination: {namespace: kube-flannel, server: "https://kubernetes.default.svc"}, syncPolicy: {automated: {}}}}
{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: root, namespace: argocd}, spec: {destination: {namespace: argocd}, syncPolicy: {automated: {}}}}
{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: far, namespace: argocd}, spec: {destination: {namespace: kube-flannel, server: "https://other:6443"}, syncPolicy: {automated: {}}}}
{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: lists, namespace: argocd}, spec: {destination: {namespace: kube-flannel}, syncPolicy: {automated: {}}}, status: {resources: [{group: apps, kind: DaemonSet, namespace: kube-flannel, name: another}]}}
`))
	for _, test := range []struct{ labels, annotations, namespace, want string }{
		{"{app.kubernetes.io/instance: net}", "{}", "kube-flannel", "net"},
		{"{app.kubernetes.io/instance: argocd_net}", "{}", "kube-flannel", "net"},
		{"{app.kubernetes.io/instance: net}", "{}", "elsewhere", ""},
		{"{app.kubernetes.io/instance: far}", "{}", "kube-flannel", ""},
		{"{app.kubernetes.io/instance: lists}", "{}", "kube-flannel", ""},
		{"{app.kubernetes.io/instance: absent}", "{}", "kube-flannel", ""},
		{"{app.kubernetes.io/instance: net}", `{argocd.argoproj.io/tracking-id: "root:apps/DaemonSet:kube-flannel/ds"}`,
			"kube-flannel", "root"},
	} {
		object := objects(t, "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: ds, namespace: "+test.namespace+
			", labels: "+test.labels+", annotations: "+test.annotations+"}}")[0]
		var got []string
		for _, by := range d.Of(KeyOf(&object), &object) {
			got = append(got, by.Key.Name)
		}
		if strings.Join(got, ",") != test.want {
			t.Errorf("%+v: %q", test, got)
		}
	}
	commands := d.Suspend(Key{"argoproj.io", "Application", "argocd", "net"})
	if len(commands) != 2 || !strings.Contains(commands[0].Do, " root ") {
		t.Errorf("the parent would put it back: %+v", commands)
	}
}

// TestTrim: what is kept says the same, and has nothing else.
func TestTrim(t *testing.T) {
	all := objects(t, `
{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: a, namespace: net}, spec: {source: {helm: {values: secret}}, destination: {name: in-cluster}, syncPolicy: {automated: {selfHeal: true}, retry: {limit: 3}}}, status: {resources: [{group: apps, kind: DaemonSet, namespace: net, name: d, health: {message: secret}}], history: [secret]}}
{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: k, namespace: net}, spec: {suspend: true, postBuild: {substitute: {a: secret}}, kubeConfig: {secretRef: {name: secret}}}, status: {inventory: {entries: [{id: net_d_apps_DaemonSet, v: v1}]}}}
{apiVersion: helm.toolkit.fluxcd.io/v2, kind: HelmRelease, metadata: {name: h, namespace: net}, spec: {values: {a: secret}, driftDetection: {mode: enabled}}}
`)
	say := func() []string {
		var words []string
		for i := range all {
			when, by := Reconciles(&all[i])
			words = append(words,
				fmt.Sprintf("%s: %q %v %v %v", all[i].GetName(), when, by, Here(&all[i]), Inventory(&all[i])))
		}
		return words
	}
	before := say()
	for i := range all {
		Trim(&all[i])
		if text := fmt.Sprint(all[i].Object); strings.Contains(text, "secret") {
			t.Error(text)
		}
	}
	if diff := cmp.Diff(before, say()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{`a: "within seconds (selfHeal)" true true [DaemonSet/net/d]`,
		`k: "" false false [DaemonSet/net/d]`, `h: "at its next interval" true true []`}, before); diff != "" {
		t.Error(diff)
	}
}

// TestEntries: entries of Flux' inventory, of the core group and with a colon in the name too.
func TestEntries(t *testing.T) {
	for id, want := range map[string]Key{
		"shop_web_apps_Deployment": {"apps", "Deployment", "shop", "web"},
		"shop_config__ConfigMap":   {"", "ConfigMap", "shop", "config"},
		"_system__net_rbac.authorization.k8s.io_ClusterRole": {"rbac.authorization.k8s.io", "ClusterRole", "",
			"system:net"}, "a_b": {}, "": {}, "a_b_c": {},
	} {
		if got, ok := entryOf(id); got != want || ok != (want != Key{}) {
			t.Errorf("%s: %v %v", id, got, ok)
		}
	}
}
