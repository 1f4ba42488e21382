package mirror

import (
	"context"
	_ "embed"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/theseus-cni/theseus/lab/internal/rigtest"
)

//go:embed shop.yaml
var shop string

// database is an object of a kind that shop.yaml defines.
const database = `
apiVersion: example.com/v1
kind: Database
metadata: {name: main, namespace: shop}
spec: {image: "registry.example.com/db:2", secretRef: {name: db}, empty: {}, list: []}
`

// TestMirror is one story on two clusters: what is refused, the copy, what is on the mirror then, changes on both
// sides, the loop, and the freeze.
func TestMirror(t *testing.T) {
	p := newPair(t, true)
	p.blue.kubectl(t, shop, "apply", "-f", "-")
	rigtest.Until(t, "the kind Database is served", func() bool {
		_, err := p.blue.try(p.blue.kubeconfig, database, "apply", "-f", "-")
		return err == nil
	})
	owned := `{apiVersion: v1, kind: ConfigMap, metadata: {name: owned, namespace: shop, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: ` +
		p.blue.get(t, "configmap/owner", "{.metadata.uid}") + `}]}}`
	p.blue.kubectl(t, owned, "apply", "-f", "-")
	rigtest.Until(t, "the controllers have made the pods of the Deployment", func() bool {
		return len(strings.Fields(p.blue.kubectl(t, "", "-n", "shop", "get", "pods", "-l",
			"app=web", "-o", "name"))) == 3
	})
	for _, act := range []struct {
		name string
		play func(*testing.T)
	}{
		{"refused", p.refused},
		{"a webhook that denies everything", p.webhook},
		{"copied", p.copied},
		{"changed on both sides", p.changed},
		{"two that have nobody's leave", p.foreign},
		{"volumes", p.volumes},
		{"watched", p.watched},
		{"a server that throttles", p.throttled},
		{"frozen", p.frozen},
		{"GitOps", p.gitops},
	} {
		if !t.Run(act.name, func(t *testing.T) { p.t = t; act.play(t) }) {
			return // what follows builds on it
		}
	}
}

// nothing demands that a refusal made nothing on the mirror.
func (p *pair) nothing(t *testing.T) {
	t.Helper()
	if out := p.green.kubectl(t, "", "get", "namespace,crd,clusterrole", "-o", "name", "-l",
		"mirror.theseus.dev/of"); out != "" {
		t.Errorf("the mirror has %s", out)
	}
}

func (p *pair) refused(t *testing.T) {
	defer p.nothing(t)
	p.theseus(2, []string{"no namespace is chosen"}, "copy")
	p.theseus(2, []string{"every cluster has its own"}, "copy", "-n", "kube-system")
	p.theseus(2, []string{"is not an action"}, "copy", "-n", "shop", "--decide", "CronJob.batch=burn")
	p.theseus(1, []string{`does not serve the kind "CronJob"`, "such as 'CronJob.batch shop/nightly'"}, "copy", "-n",
		"shop", "--decide", "CronJob shop/nightly=copy")
	p.theseus(1, []string{"--decide Deployment.apps shop/wbe: the original has no such object"}, "diff", "-n", "shop",
		"--decide", "Deployment.apps shop/wbe=suspend")
	p.theseus(1, []string{"the original has no namespace nope, nowhere"}, "copy", "-n", "nope,nowhere,shop")
	p.theseus(1, []string{"the mirror does not serve the kinds Database.example.com (1)"}, "copy", "-n", "shop",
		"--decide", "CustomResourceDefinition.apiextensions.k8s.io=skip")
	mirror := p.mirror
	p.mirror = p.blue.kubeconfig
	p.theseus(1, []string{"are one cluster"}, "copy", "-n", "shop")
	p.mirror = filepath.Join(t.TempDir(), "none")
	p.theseus(1, nil, "copy", "-n", "shop")
	p.mirror = mirror
}

// webhook: the mirror denies what it is given, or cannot ask who would say so, and a person reads by whom and why.
func (p *pair) webhook(t *testing.T) {
	url, authority := refuser(t)
	p.green.kubectl(t, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: refuser}
webhooks:
- name: refuser.example.com
  clientConfig: {url: %q, caBundle: %s}
  rules: [{apiGroups: ["*"], apiVersions: ["*"], resources: ["configmaps", "deployments"], operations: ["*"]}]
  admissionReviewVersions: [v1]
  sideEffects: None
`, url, base64.StdEncoding.EncodeToString(authority)), "apply", "-f", "-")
	rigtest.Until(t, "the webhook is in force", func() bool {
		out, err := p.green.try(p.green.kubeconfig, "", "create", "configmap", "x", "--dry-run=server")
		return err != nil && strings.Contains(out, "nothing passes here")
	})
	p.theseus(1, []string{"the mirror did not take 4 objects", "its admission webhook refuser.example.com denies: " +
		"nothing passes here", "Deployment.apps shop/web", "exempt the field manager's user"}, "copy", "-n", "shop")
	p.green.kubectl(t, "", "patch", "validatingwebhookconfiguration", "refuser", "--type=json", "-p",
		`[{"op":"replace","path":"/webhooks/0/clientConfig/url","value":"https://127.0.0.1:1/"}]`)
	rigtest.Until(t, "the API server calls the webhook, which does not answer", func() bool {
		out, err := p.green.try(p.green.kubeconfig, "", "create", "configmap", "x", "--dry-run=server")
		return err != nil && strings.Contains(out, "failed calling webhook")
	})
	p.theseus(1, []string{"the mirror did not take 4 objects", "its admission webhook refuser.example.com cannot be " +
		"called: ", "connection refused", "start the pods of the webhook"}, "copy", "-n", "shop")
	p.green.kubectl(t, "", "delete", "validatingwebhookconfiguration", "refuser")
	rigtest.Until(t, "the webhook is gone", func() bool {
		_, err := p.green.try(p.green.kubeconfig, "", "create", "configmap", "x", "--dry-run=server")
		return err == nil
	})
}

func (p *pair) copied(t *testing.T) {
	p.theseus(0, []string{"suspend CronJob.batch shop/nightly",
		"disarm Service shop/web", "suspend Job.batch shop/import"}, "copy", "-n", "shop")
	rigtest.Until(t, "the mirror's controllers made the pods and signed the token", func() bool {
		return len(strings.Fields(p.green.kubectl(t, "", "-n", "shop", "get", "pods", "-l",
			"app=web", "-o", "name"))) == 3 &&
			p.green.get(t, "pdb/web", "{.status.expectedPods}") == "3" &&
			p.green.get(t, "secret/token", "{.data.token}") != ""
	})
	before := p.versions(t)
	p.theseus(0, []string{"in step: "}, "copy", "-n", "shop") // the controllers' work is no difference
	p.theseus(0, []string{"0 differ"}, "diff", "-n", "shop")
	if after := p.versions(t); before != after {
		t.Errorf("a second run changed something:\n%s\n%s", before, after)
	}
	for _, same := range []struct{ object, path string }{
		{"networkpolicy/open-egress", "{.spec}"}, {"pdb/web", "{.spec}"},
		{"database/main", "{.spec}"}, {"secret/db", "{.data}"}, {"configmap/web", "{.data}"},
		{"deployment/web", "{.spec}"}, {"ingress/web", "{.spec}"}, {"hpa/web", "{.spec}"},
		{"service/fixed", "{.spec.ports}"}, {"service/headless", "{.spec.clusterIPs}"},
		{"service/web", "{.spec.externalTrafficPolicy}"}, {"endpoints/outside", "{.subsets}"},
		{"clusterrolebinding/shop-reader", "{.subjects}{.roleRef}"},
		{"namespace/shop", "{.metadata.labels.team}"},
	} {
		if here, there := p.blue.get(t, same.object, same.path),
			p.green.get(t, same.object, same.path); here != there || here == "" {
			t.Errorf("%s %s: %s and %s", same.object, same.path, here, there)
		}
	}
	for object, want := range map[string]string{
		"cronjob/nightly {.spec.suspend}": "true", "job/import {.spec.suspend}": "true",
		"service/web {.metadata.annotations.disarmed\\.theseus\\.dev/hostname}":               "web.example.com",
		"service/web {.metadata.annotations.external-dns\\.alpha\\.kubernetes\\.io/hostname}": "",
		"configmap/owned {.metadata.ownerReferences[0].uid}": p.green.get(t,
			"configmap/owner", "{.metadata.uid}"),
	} {
		name, path, _ := strings.Cut(object, " ")
		if got := p.green.get(t, name, path); got != want {
			t.Errorf("%s: %q, want %q", object, got, want)
		}
	}
	if out, err := p.green.try(p.green.kubeconfig, "", "get", "clusterrole", "unrelated"); err == nil {
		t.Errorf("what nobody needs went over: %s", out)
	}
	if p.green.get(t, "secret/token", "{.data.token}") == p.blue.get(t, "secret/token", "{.data.token}") {
		t.Error("the token is the original's")
	}
}

// versions are the versions of all that was copied, but for what the mirror's controllers write.
func (p *pair) versions(t *testing.T) string {
	t.Helper()
	return p.green.kubectl(t, "", "-n", "shop", "get",
		"configmap,service,networkpolicy,pdb,serviceaccount,ingress,database,clusterrole,priorityclass",
		"-l", "mirror.theseus.dev/of", "-o",
		"jsonpath={range .items[*]}{.kind}/{.metadata.name}={.metadata.resourceVersion} {end}")
}

func (p *pair) changed(t *testing.T) {
	p.blue.kubectl(t, "", "-n", "shop", "delete", "ingress", "web")
	p.blue.kubectl(t, "", "-n", "shop", "patch", "configmap", "web", "--type=json", "-p",
		`[{"op":"remove","path":"/data/a"},{"op":"add","path":"/data/b","value":"2"}]`)
	p.green.kubectl(t, "", "-n", "shop", "patch", "service", "fixed", "--type=merge", "-p",
		`{"spec":{"selector":{"app":"other"}}}`, "--field-manager=somebody")
	// What the autoscaler of the mirror sets is its own matter.
	p.green.kubectl(t, "", "-n", "shop", "scale", "deployment", "web", "--replicas=7")
	p.theseus(3, []string{"delete Ingress.networking.k8s.io shop/web", `data.b: is null, should be "2"`,
		`spec.selector.app: is "other", should be "web" (written by somebody at `, "3 differ"}, "diff", "-n", "shop")
	p.theseus(0, []string{"0 created, 2 updated, 1 deleted", "in step: "}, "copy", "-n", "shop")
	for object, want := range map[string]string{"configmap/web {.data}": `{"b":"2","empty":""}`,
		"service/fixed {.spec.selector.app}": "web", "deployment/web {.spec.replicas}": "7"} {
		name, path, _ := strings.Cut(object, " ")
		if got := p.green.get(t, name, path); got != want {
			t.Errorf("%s: %q, want %q", object, got, want)
		}
	}
	if out, err := p.green.try(p.green.kubeconfig, "", "-n", "shop", "get", "ingress", "web"); err == nil {
		t.Errorf("the deletion did not follow: %s", out)
	}
}

// foreign: what the mirror has already is nobody's to overwrite, nor to delete.
func (p *pair) foreign(t *testing.T) {
	p.green.kubectl(t, "", "-n", "shop", "create", "configmap", "theirs", "--from-literal=a=green")
	p.green.kubectl(t, "", "-n", "shop", "create", "configmap", "only-there")
	p.blue.kubectl(t, "", "-n", "shop", "create", "configmap", "theirs", "--from-literal=a=blue")
	p.theseus(6, []string{"that were not copied from here: ConfigMap shop/theirs"}, "copy", "-n", "shop")
	if got := p.green.get(t, "configmap/theirs", "{.data.a}"); got != "green" {
		t.Errorf("it was overwritten with %s", got)
	}
	p.theseus(0, nil, "copy", "-n", "shop", "--adopt")
	if got := p.green.get(t, "configmap/theirs", "{.data.a}"); got != "blue" {
		t.Errorf("it was not taken over: %s", got)
	}
	p.green.get(t, "configmap/only-there", "{.metadata.name}")
}

func (p *pair) volumes(t *testing.T) {
	p.blue.kubectl(t,
		`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: shop}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`,
		"apply", "-f", "-")
	p.theseus(6, []string{"PersistentVolumeClaim shop/data: its data (1Gi) is not copied", "--empty-volume shop/data"},
		"copy", "-n", "shop")
	p.theseus(0, []string{"1 created"}, "copy", "-n", "shop", "--empty-volume", "shop/data")
	p.blue.kubectl(t, "", "-n", "shop", "delete", "pvc", "data", "--wait=false")
	p.theseus(0, []string{"1 deleted"}, "copy", "-n", "shop")
}

func (p *pair) watched(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// so that only what is seen to change counts
	cmd := p.command(ctx, "copy", "-n", "shop", "--watch", "--resync", "1h")
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for _, act := range []struct {
		what string
		do   []string
		seen func() bool
	}{
		{"a new object", []string{"create", "configmap", "fresh"}, func() bool { return p.has("configmap/fresh") }},
		{"a deleted one", []string{"delete", "configmap", "fresh"}, func() bool { return !p.has("configmap/fresh") }},
		{"a changed one", []string{"set", "image", "deployment/web",
			"web=registry.example.com/team/web:2"}, func() bool {
			out, _ := p.green.try(p.green.kubeconfig, "", "-n", "shop", "get", "deployment", "web", "-o",
				"jsonpath={.spec.template.spec.containers[0].image}")
			return out == "registry.example.com/team/web:2"
		}},
	} {
		p.blue.kubectl(t, "", append([]string{"-n", "shop"}, act.do...)...)
		rigtest.Until(t, act.what+" is on the mirror", act.seen)
	}
	p.green.kubectl(t, "", "-n", "shop", "delete", "service", "fixed")
	rigtest.Until(t, "what was deleted on the mirror is back", func() bool { return p.has("service/fixed") })
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		said, _ := os.ReadFile(log.Name())
		t.Errorf("%v:\n%s", err, said)
	}
}

func (p *pair) has(object string) bool {
	_, err := p.green.try(p.green.kubeconfig, "", "-n", "shop", "get", object)
	return err == nil
}

// throttled: an API server that takes two requests at a time, and answers all others with 429.
func (p *pair) throttled(t *testing.T) {
	full := p.mirror
	p.mirror = p.green.server(t, port(t), "--enable-priority-and-fairness=false",
		"--max-requests-inflight=2", "--max-mutating-requests-inflight=2")
	defer func() { p.mirror = full }()
	p.blue.kubectl(t, many("busy", 300), "apply", "--server-side", "-f", "-")
	p.theseus(0, []string{"300 created", "in step: "}, "copy", "-n", "shop", "--workers", "64")
	p.blue.kubectl(t, "", "-n", "shop", "delete", "configmap", "-l", "many=busy")
	p.theseus(0, []string{"300 deleted"}, "copy", "-n", "shop")
}

// many are ConfigMaps as a List.
func many(name string, n int) string {
	var items []string
	for i := range n {
		items = append(items, fmt.Sprintf(
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s-%05d","namespace":"shop","labels":{"many":%q}},"data":{"a":"%d"}}`,
			name, i, name, i))
	}
	return `{"apiVersion":"v1","kind":"List","items":[` + strings.Join(items, ",") + `]}`
}

func (p *pair) frozen(t *testing.T) {
	p.theseus(2, []string{"needs a reason"}, "freeze", "-n", "shop")
	p.theseus(2, []string{"kube-system cannot be frozen"}, "freeze", "-n", "kube-system", "--because", "x")
	p.theseus(1, []string{"there is no namespace nope"}, "freeze", "-n", "nope", "--because", "x")
	p.theseus(0, []string{"frozen: shop"}, "freeze", "-n", "shop", "--because", "CHG-1", "--allow", "somebody-trusted")
	p.theseus(1, []string{"are frozen since ", "CHG-1"}, "freeze", "-n", "shop", "--because", "another")
	denied := func(args ...string) {
		t.Helper()
		out, err := p.blue.try(p.blue.kubeconfig, "", append([]string{"-n", "shop"}, args...)...)
		if err == nil || !strings.Contains(out, "kubernetes-admin froze this namespace at 2") {
			t.Errorf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		if !strings.Contains(out, ": CHG-1.") {
			t.Errorf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	denied("set", "image", "deployment/web", "web=x")
	denied("scale", "deployment/web", "--replicas=5")
	denied("create", "configmap", "a")
	denied("patch", "database", "main", "--type=merge", "-p", `{"spec":{"a":1}}`)
	denied("delete", "service", "web")
	denied("label", "namespace", "shop", "kubernetes.io/metadata.name=x", "--overwrite")
	denied("delete", "namespace", "shop")
	denied("run", "x", "--image=x")
	pass := func(args ...string) {
		t.Helper()
		p.blue.kubectl(t, "", append([]string{"-n", "shop"}, args...)...)
	}
	const admins = "--as-group=system:masters"
	pass("scale", "deployment/web", "--replicas=5", "--as=system:serviceaccount:kube-system:horizontal-pod-autoscaler",
		admins)
	pass("annotate", "configmap", "web", "x=y", "--as=somebody-trusted", admins)
	pass("delete", "pod", "--wait=false", strings.Fields(p.blue.kubectl(t, "", "-n", "shop", "get", "pods", "-o",
		"jsonpath={.items[*].metadata.name}"))[0])
	rigtest.Until(t, "the controllers have made five pods", func() bool {
		return len(strings.Fields(p.blue.kubectl(t, "", "-n", "shop", "get", "pods", "-l", "app=web",
			"--field-selector=status.phase=Pending", "-o", "name"))) >= 5
	})
	p.blue.kubectl(t, "", "create", "configmap", "elsewhere")
	// belongs to no namespace that is frozen
	p.blue.kubectl(t, "", "create", "clusterrole", "cluster-wide", "--verb=get", "--resource=pods")
	p.blue.kubectl(t, "", "create", "namespace", "elsewhere")
	p.theseus(0, nil, "copy", "-n", "shop") // reading is not frozen
	p.theseus(0, []string{"thawed: shop"}, "thaw")
	pass("create", "configmap", "a")
	p.theseus(0, []string{"nothing was frozen"}, "thaw")
}

// gitops: what deploys to a frozen namespace stands still, its parents too, and gets back exactly what it had.
func (p *pair) gitops(t *testing.T) {
	const definition = `
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]s.%[1]s}
spec: {group: %[1]s, scope: Namespaced, names: {kind: %[3]s, plural: %[2]s}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}`
	p.blue.kubectl(t, fmt.Sprintf(definition, "argoproj.io", "applications", "Application")+
		fmt.Sprintf(definition, "kustomize.toolkit.fluxcd.io", "kustomizations", "Kustomization"),
		"apply", "-f", "-")
	objects := `
---
{apiVersion: argoproj.io/v1, kind: Application, metadata: {name: shop, namespace: default}, spec: {destination: {server: "https://kubernetes.default.svc", namespace: shop}, syncPolicy: {automated: {prune: true, selfHeal: false}, retry: {limit: 5}}}}
---
{apiVersion: argoproj.io/v1, kind: Application, metadata: {name: other, namespace: default}, spec: {destination: {server: "https://kubernetes.default.svc", namespace: other}, syncPolicy: {automated: {}}}}
---
{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: shop, namespace: default}, spec: {targetNamespace: shop}}
---
{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: root, namespace: default}, spec: {suspend: false}, status: {inventory: {entries: [{id: default_shop_kustomize.toolkit.fluxcd.io_Kustomization, v: v1}]}}}
`
	rigtest.Until(t, "the kinds are served", func() bool {
		_, err := p.blue.try(p.blue.kubeconfig, objects, "apply", "-f", "-")
		return err == nil
	})
	state := func() string {
		return p.blue.kubectl(t, "", "get", "applications,kustomizations", "-o",
			"jsonpath={range .items[*]}{.metadata.name} {.spec}{\"\\n\"}{end}")
	}
	before := state()
	p.theseus(0, []string{"suspended Application.argoproj.io default/shop",
		"suspended Kustomization.kustomize.toolkit.fluxcd.io default/shop",
		"suspended Kustomization.kustomize.toolkit.fluxcd.io default/root"}, "freeze", "-n",
		"shop", "--because", "CHG-2")
	frozen := state()
	if strings.Contains(frozen, "selfHeal") || strings.Count(frozen, `"suspend":true`) != 2 ||
		!strings.Contains(frozen, `"automated":{}`) {
		t.Errorf("frozen:\n%s", frozen)
	}
	p.theseus(0, nil, "freeze", "-n", "shop", "--because", "CHG-2") // again: what was remembered stays
	p.theseus(0, []string{"resumed Application.argoproj.io default/shop"}, "thaw")
	if after := state(); after != before {
		t.Errorf("thawed:\n%s\nand before:\n%s", after, before)
	}
}
