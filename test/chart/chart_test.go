package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	packing "github.com/theseus-cni/theseus/release/chart"
)

// TestLint is `helm lint`.
func TestLint(t *testing.T) {
	version, err := chartutil.ParseKubeVersion(kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	for _, message := range lint.AllWithKubeVersion(dir, map[string]any{}, "theseus-system", version).Messages {
		if message.Severity > support.InfoSev {
			t.Error(message)
		}
	}
}

// TestObjects: the chart has these objects, no others, and each once.
func TestObjects(t *testing.T) {
	always := []string{
		"ClusterRole theseus-changes", "ClusterRole theseus-controller", "ClusterRoleBinding theseus-changes",
		"ClusterRoleBinding theseus-controller", "CustomResourceDefinition approvals.theseus.dev",
		"CustomResourceDefinition changes.theseus.dev", "CustomResourceDefinition journalpages.theseus.dev",
		"CustomResourceDefinition migrations.theseus.dev", "CustomResourceDefinition planpages.theseus.dev",
		"Deployment theseus-controller", "Job theseus-uninstall-check", "PodDisruptionBudget theseus-controller",
		"Role theseus-changes", "Role theseus-changes in default", "Role theseus-controller",
		"Role theseus-controller in default", "RoleBinding theseus-changes", "RoleBinding theseus-changes in default",
		"RoleBinding theseus-controller", "RoleBinding theseus-controller in default",
		"ServiceAccount theseus-controller", "ValidatingAdmissionPolicy theseus-approvals",
		"ValidatingAdmissionPolicy theseus-asked", "ValidatingAdmissionPolicyBinding theseus-approvals",
		"ValidatingAdmissionPolicyBinding theseus-asked",
	}
	roles := []string{"ClusterRole theseus-approve", "ClusterRole theseus-look", "ClusterRole theseus-plan",
		"Role theseus-approve", "Role theseus-look", "Role theseus-plan", "Role theseus-plan in default"}
	page := []string{"ClusterRole theseus-web", "ClusterRoleBinding theseus-web", "Deployment theseus-web",
		"Role theseus-web", "Role theseus-web in default", "RoleBinding theseus-web",
		"RoleBinding theseus-web in default", "ServiceAccount theseus-web"}
	for text, want := range map[string][]string{"": always,
		"web: {enabled: true}": slices.Sorted(slices.Values(slices.Concat(always, page))),
		"web: {enabled: true, tls: {secretName: page}}": slices.Sorted(
			slices.Values(append(slices.Concat(always, page), "Service theseus-web"))),
		"roles: {create: true}": slices.Sorted(slices.Values(slices.Concat(always, roles)))} {
		if got := slices.Sorted(maps.Keys(objects(t, render(t, text)))); !slices.Equal(got, want) {
			t.Errorf("%q renders %q\nwant %q", text, got, want)
		}
	}
}

// TestKept: an uninstall keeps the CRDs, and so the journals.
func TestKept(t *testing.T) {
	for name, object := range objects(t, render(t, "")) {
		keeps := object.GetAnnotations()["helm.sh/resource-policy"] == "keep"
		if keeps != strings.HasPrefix(name, "CustomResourceDefinition") {
			t.Errorf("%s is kept: %v", name, keeps)
		}
	}
}

// TestRights: the controller has no right to everything of anything.
func TestRights(t *testing.T) {
	for name, object := range objects(t, render(t, "web: {enabled: true}")) {
		if !strings.HasPrefix(name, "ClusterRole ") && !strings.HasPrefix(name, "Role ") {
			continue
		}
		var role struct {
			Rules []struct{ Verbs, Resources, APIGroups []string }
		}
		text, err := json.Marshal(object.Object)
		if err == nil {
			err = json.Unmarshal(text, &role)
		}
		if err != nil || len(role.Rules) == 0 {
			t.Fatalf("%s: %v, %d rules", name, err, len(role.Rules))
		}
		for _, rule := range role.Rules {
			if strings.HasSuffix(name, "Role theseus-web") && slices.ContainsFunc(rule.Verbs,
				func(verb string) bool { return !slices.Contains([]string{"get", "list", "watch"}, verb) }) {
				t.Errorf("%s: the page acts with the permissions of people, and has %+v", name, rule)
			}
			writes := !slices.Equal(rule.Verbs, []string{"list"}) && !slices.Equal(rule.Verbs, []string{"get", "list"})
			if slices.Contains(rule.Verbs, "*") || slices.Contains(rule.APIGroups, "*") ||
				writes && slices.Contains(rule.Resources, "*") {
				t.Errorf("%s: %+v", name, rule)
			}
		}
	}
}

// TestConfined: the pods are on the host's network, with no other right on the node.
func TestConfined(t *testing.T) {
	p := partsOf(t, render(t, ""))
	if p.check.Annotations["helm.sh/hook"] != "pre-delete" || *p.check.Spec.BackoffLimit != 0 {
		t.Errorf("the check before an uninstall: %+v", p.check.ObjectMeta)
	}
	if p.budget.Spec.MaxUnavailable.String() != "1" ||
		p.deployment.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		t.Errorf("the budget %+v, the strategy %+v", p.budget.Spec, p.deployment.Spec.Strategy)
	}
	selector := p.deployment.Spec.Selector.MatchLabels
	if !reflect.DeepEqual(selector, p.budget.Spec.Selector.MatchLabels) {
		t.Errorf("the Deployment selects %v, the budget %v", selector, p.budget.Spec.Selector.MatchLabels)
	}
	for name, template := range map[string]corev1.PodTemplateSpec{"Deployment": p.deployment.Spec.Template,
		"Job": p.check.Spec.Template} {
		selected := true
		for key, value := range selector {
			selected = selected && template.Labels[key] == value
		}
		if selected != (name == "Deployment") {
			t.Errorf("%s: the Deployment selects its pods: %v", name, selected)
		}
		if template.Labels["theseus.dev/managed"] != "true" {
			t.Errorf("%s: the pods have no label of Theseus: %v", name, template.Labels)
		}
		confined(t, name, template.Spec, "theseus-controller")
	}
	confined(t, "page", webOf(t, partsOf(t, render(t, "web: {enabled: true}"))).Spec.Template.Spec, "theseus-web")
}

// webOf is the Deployment of the page. Its pods are none of the controller's.
func webOf(t *testing.T, p parts) appsv1.Deployment {
	t.Helper()
	var page appsv1.Deployment
	into(t, p.objects, "Deployment theseus-web", &page)
	if page.Spec.Selector.MatchLabels["app.kubernetes.io/name"] != "theseus-web" ||
		page.Spec.Template.Labels["app.kubernetes.io/name"] != "theseus-web" ||
		page.Spec.Template.Labels["theseus.dev/managed"] != "true" {
		t.Errorf("the page selects %v, and its pods have %v", page.Spec.Selector, page.Spec.Template.Labels)
	}
	return page
}

// TestPage: without a certificate, the page is on loopback alone, and no Service leads to it. With one, both addresses
// have TLS.
func TestPage(t *testing.T) {
	for text, want := range map[string]struct {
		args   []string
		host   string
		scheme corev1.URIScheme
	}{
		"web: {enabled: true}": {[]string{"web", "--state-dir=/var/lib/theseus", "--listen=127.0.0.1:7113"},
			"127.0.0.1", corev1.URISchemeHTTP},
		"web: {enabled: true, port: 8443, tls: {secretName: page}}": {[]string{"web", "--state-dir=/var/lib/theseus",
			"--listen=127.0.0.1:8443", "--listen=[$(HOST_IP)]:8443", "--tls=/etc/theseus/tls"},
			"", corev1.URISchemeHTTPS},
	} {
		p := partsOf(t, render(t, text))
		container := webOf(t, p).Spec.Template.Spec.Containers[0]
		if !slices.Equal(container.Args, want.args) || container.Ports[0].HostIP != want.host ||
			container.Ports[0].HostPort != container.Ports[0].ContainerPort {
			t.Errorf("%s: %q, %+v", text, container.Args, container.Ports)
		}
		for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
			if get := probe.HTTPGet; get.Host != "127.0.0.1" || get.Scheme != want.scheme {
				t.Errorf("%s: probe %+v", text, get)
			}
		}
		if want := fmt.Sprintf("%s://localhost:%d/", strings.ToLower(string(want.scheme)),
			container.Ports[0].ContainerPort); !strings.Contains(p.notes, want) {
			t.Errorf("the notes lack %s: %s", want, p.notes)
		}
	}
}

func confined(t *testing.T, name string, spec corev1.PodSpec, account string) {
	t.Helper()
	if !spec.HostNetwork || spec.DNSPolicy != corev1.DNSDefault || spec.HostPID || spec.HostIPC ||
		spec.ServiceAccountName != account {
		t.Errorf("%s: the pod: %+v", name, spec)
	}
	pod := spec.SecurityContext
	if !*pod.RunAsNonRoot || *pod.RunAsUser != 65532 ||
		pod.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s: the pod's security: %+v", name, pod)
	}
	for _, volume := range spec.Volumes {
		if volume.EmptyDir == nil || volume.EmptyDir.SizeLimit == nil {
			t.Errorf("%s: the volume %s: %+v", name, volume.Name, volume)
		}
	}
	for _, container := range spec.Containers {
		own := container.SecurityContext
		if own.Privileged != nil || *own.AllowPrivilegeEscalation || !*own.ReadOnlyRootFilesystem ||
			len(own.Capabilities.Add) > 0 ||
			!slices.Equal(own.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("%s: %+v", name, own)
		}
		if container.Resources.Limits.Memory().IsZero() || container.Resources.Requests.Cpu().IsZero() {
			t.Errorf("%s: resources: %+v", name, container.Resources)
		}
	}
}

// TestReplicas: a replica is never on the node of another one, since both would serve /healthz on one port.
func TestReplicas(t *testing.T) {
	container := partsOf(t, render(t, "replicas: 3")).deployment.Spec.Template.Spec.Containers[0]
	if len(container.Ports) != 1 || container.Ports[0].HostPort == 0 || container.Ports[0].HostIP != "127.0.0.1" {
		t.Errorf("ports: %+v", container.Ports)
	}
	for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
		if get := probe.HTTPGet; get.Host != "127.0.0.1" || get.Path != "/healthz" ||
			get.Port.String() != container.Ports[0].Name {
			t.Errorf("probe: %+v", get)
		}
	}
}

// TestMovesOffLostNodes: the tolerations with a time come first, since the first one that matches a taint counts.
func TestMovesOffLostNodes(t *testing.T) {
	spec := partsOf(t, render(t, "")).deployment.Spec.Template.Spec
	for _, taint := range []corev1.Taint{
		{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute},
		{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute},
		{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule},
	} {
		i := slices.IndexFunc(spec.Tolerations, func(one corev1.Toleration) bool {
			return one.Key == "" || one.Key == taint.Key
		})
		if i < 0 {
			t.Errorf("%s is not tolerated", taint.Key)
		} else if timed :=
			spec.Tolerations[i].TolerationSeconds != nil; timed != (taint.Effect == corev1.TaintEffectNoExecute) {
			t.Errorf("%s: %+v", taint.Key, spec.Tolerations[i])
		}
	}
}

const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// cases are values by the path of what they set, and what shows in the objects then.
func cases() map[string]struct {
	values string
	shows  func(p parts) bool
} {
	type one = struct {
		values string
		shows  func(p parts) bool
	}
	// image: the pods of both have it.
	image := func(want string) func(p parts) bool {
		return func(p parts) bool {
			return p.deployment.Spec.Template.Spec.Containers[0].Image == want &&
				p.check.Spec.Template.Spec.Containers[0].Image == want
		}
	}
	// pods: it is so in the pods of both.
	pods := func(so func(spec corev1.PodSpec) bool) func(p parts) bool {
		return func(p parts) bool { return so(p.deployment.Spec.Template.Spec) && so(p.check.Spec.Template.Spec) }
	}
	args := func(p parts, word string) bool {
		return slices.Contains(p.deployment.Spec.Template.Spec.Containers[0].Args, word)
	}
	return map[string]one{
		"image.registry": {"image: {registry: registry.example.com:5000/infra}",
			image("registry.example.com:5000/infra/theseus-controller:dev")},
		"image.repository": {"image: {repository: a/controller}", image("ghcr.io/theseus-cni/a/controller:dev")},
		"image.tag":        {"image: {tag: v0.3.0}", image("ghcr.io/theseus-cni/theseus-controller:v0.3.0")},
		"image.digest": {"image: {digest: \"" + digest + "\"}",
			image("ghcr.io/theseus-cni/theseus-controller:dev@" + digest)},
		"image.pullPolicy": {"image: {pullPolicy: Never}", pods(func(spec corev1.PodSpec) bool {
			return spec.Containers[0].ImagePullPolicy == corev1.PullNever
		})},
		"imagePullSecrets": {"imagePullSecrets: [{name: a}, {name: b}]", pods(func(spec corev1.PodSpec) bool {
			return slices.Equal(spec.ImagePullSecrets, []corev1.LocalObjectReference{{Name: "a"}, {Name: "b"}})
		})},
		"approvals": {"approvals: 2", func(p parts) bool {
			return args(p, "--approvals=2") && strings.Contains(p.notes, "after 2 users have approved it")
		}},
		"allowedSigners": {"allowedSigners: a ssh-ed25519 AAAA", func(p parts) bool {
			volumes := p.deployment.Spec.Template.Spec.Volumes
			at := slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.Name == "signers" })
			if at < 0 {
				return false
			}
			list := p.objects["Secret "+volumes[at].Secret.SecretName].Object
			return args(p, "--allowed-signers=/etc/theseus/signers/allowed_signers") && list["immutable"] == true &&
				fmt.Sprint(list["data"]) == "map[allowed_signers:YSBzc2gtZWQyNTUxOSBBQUFB]" &&
				slices.Contains(p.deployment.Spec.Template.Spec.Containers[0].VolumeMounts,
					corev1.VolumeMount{Name: "signers", MountPath: "/etc/theseus/signers", ReadOnly: true}) &&
				strings.Contains(p.notes, "theseus approve --sign KEY")
		}},
		"apiServers": {"apiServers: ['10.0.0.1:6443', '[fd00::1]:6443']", func(p parts) bool {
			return args(p, "--api-server=10.0.0.1:6443") && args(p, "--api-server=[fd00::1]:6443") &&
				slices.Equal(p.check.Spec.Template.Spec.Containers[0].Args,
					[]string{"uninstall-check", "--api-server=10.0.0.1:6443", "--api-server=[fd00::1]:6443"})
		}},
		"planning.enabled": {"planning: {enabled: false}", func(p parts) bool {
			_, kind := p.objects["CustomResourceDefinition changes.theseus.dev"]
			_, rights := p.objects["ClusterRole theseus-changes"]
			return args(p, "--planning=false") && !kind && !rights &&
				!strings.Contains(p.notes, "kubectl describe change")
		}},
		"planning.agentImage": {"planning: {agentImage: 'registry.example.com/agent:1'}", func(p parts) bool {
			return args(p, "--agent-image=registry.example.com/agent:1")
		}},
		"metrics.enabled": {"metrics: {enabled: true}", func(p parts) bool {
			ports := p.deployment.Spec.Template.Spec.Containers[0].Ports
			return args(p, "--metrics=[$(HOST_IP)]:7112") && len(ports) == 2 && ports[1].Name == "metrics" &&
				ports[1].HostPort == 7112
		}},
		"metrics.port": {"metrics: {enabled: true, port: 9464}", func(p parts) bool {
			ports := p.deployment.Spec.Template.Spec.Containers[0].Ports
			return args(p, "--metrics=[$(HOST_IP)]:9464") && ports[1].ContainerPort == 9464 && ports[1].HostPort == 9464
		}},
		"metrics.podMonitor": {"metrics: {enabled: true, podMonitor: true}", func(p parts) bool {
			monitor, found := p.objects["PodMonitor theseus-controller"]
			return found && strings.Contains(fmt.Sprint(monitor.Object["spec"]), "port:metrics") &&
				strings.Contains(fmt.Sprint(monitor.Object["spec"]), "theseus-controller")
		}},
		"metrics.podMonitorLabels": {"metrics: {enabled: true, podMonitor: true, podMonitorLabels: {release: 'on'}}",
			func(p parts) bool {
				monitor := p.objects["PodMonitor theseus-controller"]
				return monitor.GetLabels()["release"] == "on"
			}},
		"maxWritesPerSecond": {"maxWritesPerSecond: 20", func(p parts) bool {
			return args(p, "--max-writes-per-second=20")
		}},
		"notify.secretName": {"notify: {secretName: events}", func(p parts) bool {
			spec := p.deployment.Spec.Template.Spec
			last := spec.Volumes[len(spec.Volumes)-1]
			return args(p, "--notify=@/etc/theseus/notify/url") &&
				args(p, "--notify-secret-file=/etc/theseus/notify/secret") && last.Secret != nil &&
				last.Secret.SecretName == "events"
		}},
		"web.enabled": {"web: {enabled: true}", func(p parts) bool {
			_, found := p.objects["Deployment theseus-web"]
			return found
		}},
		"web.port": {"web: {enabled: true, port: 8443}", func(p parts) bool {
			return strings.Contains(fmt.Sprint(p.objects["Deployment theseus-web"].Object), "--listen=127.0.0.1:8443")
		}},
		"web.tls.secretName": {"web: {enabled: true, tls: {secretName: page}}", func(p parts) bool {
			_, found := p.objects["Service theseus-web"]
			return found && strings.Contains(fmt.Sprint(p.objects["Deployment theseus-web"].Object), "secretName:page")
		}},
		"web.resources": {"web: {enabled: true, resources: {limits: {memory: 3Gi}}}", func(p parts) bool {
			return strings.Contains(fmt.Sprint(p.objects["Deployment theseus-web"].Object), "memory:3Gi")
		}},
		"replicas": {"replicas: 2", func(p parts) bool { return *p.deployment.Spec.Replicas == 2 }},
		"resources.requests": {"resources: {requests: {cpu: 1}}", func(p parts) bool {
			of := p.deployment.Spec.Template.Spec.Containers[0].Resources.Requests
			return of.Cpu().String() == "1" && of.Memory().String() == "128Mi"
		}},
		"resources.limits": {"resources: {limits: {memory: 2Gi}}", func(p parts) bool {
			return p.deployment.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().String() == "2Gi"
		}},
		"priorityClassName": {"priorityClassName: \"\"", pods(func(spec corev1.PodSpec) bool {
			return spec.PriorityClassName == ""
		})},
		"tolerations": {"tolerations: [{key: a, operator: Exists}]", pods(func(spec corev1.PodSpec) bool {
			return slices.Equal(spec.Tolerations, []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}})
		})},
		"nodeSelector": {"nodeSelector: {a: \"1\"}", pods(func(spec corev1.PodSpec) bool {
			return maps.Equal(spec.NodeSelector, map[string]string{"a": "1"})
		})},
		"podAnnotations": {"podAnnotations: {a: \"1\"}", func(p parts) bool {
			return maps.Equal(p.deployment.Spec.Template.Annotations, map[string]string{"a": "1"})
		}},
		"roles.create": {"roles: {create: true}", func(p parts) bool {
			_, found := p.objects["ClusterRole theseus-look"]
			return found
		}},
		"global": {"global: {a: 1}", func(parts) bool { return true }},
	}
}

// TestValues: every value of the schema has a default and does something, and nothing shows what it does without it.
func TestValues(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(dir, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	schema := map[string]any{}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	all, defaults := cases(), load(t).Values
	paths := leaves(schema)
	if slices.Sort(paths); !slices.Equal(paths, slices.Sorted(maps.Keys(all))) {
		t.Fatalf("the schema has the values %q\ncases are of %q", paths, slices.Sorted(maps.Keys(all)))
	}
	page, err := os.ReadFile("../../docs/how-to/install.md")
	if err != nil {
		t.Fatal(err)
	}
	plain := partsOf(t, render(t, ""))
	for path, one := range all {
		if !has(defaults, path) && path != "global" {
			t.Errorf("%s has no default in values.yaml", path)
		}
		if !strings.Contains(string(page), "\n| `"+path+"` | ") && path != "global" {
			t.Errorf("%s has no row in docs/how-to/install.md", path)
		}
		if !one.shows(partsOf(t, render(t, one.values))) {
			t.Errorf("%s does not show in what is rendered", one.values)
		}
		if one.shows(plain) && path != "global" {
			t.Errorf("%s: what it does shows without it", path)
		}
	}
}

// TestSchema: values that cannot work are refused before anything is installed.
func TestSchema(t *testing.T) {
	for _, text := range []string{
		"imgae: {}", "image: {tga: a}", "image: {registry: \"\"}", "image: {registry: 'https://ghcr.io'}",
		"image: {registry: ghcr.io/}", "image: {repository: \"\"}", "image: {tag: 'a b'}", "image: {digest: abc}",
		"image: {digest: sha256:abc}", "image: {pullPolicy: Sometimes}", "image: ghcr.io/a",
		"imagePullSecrets: [registry]", "imagePullSecrets: [{name: \"\"}]", "planning: {enabled: 'yes'}",
		"planning: {agentImage: 'a b'}", "planning: {on: true}", "planning: false", "metrics: true",
		"metrics: {enabled: 'yes'}", "metrics: {port: 80}", "metrics: {port: 7111}", "metrics: {port: '9464'}",
		"metrics: {podMonitor: 1}", "metrics: {podMonitorLabels: {a: 1}}",
		"web: true", "web: {enabled: 'yes'}", "web: {port: 443}", "web: {port: 7111}",
		"web: {tls: {secretName: 'A b'}}", "web: {tls: page}", "web: {host: a}", "web: {resources: {claims: []}}",
		"notify: {secretName: 'A b'}", "notify: {url: 'https://a'}", "notify: true", "approvals: 0", "approvals: 1.5",
		"approvals: '1'", "approvals: -1", "allowedSigners: [a]", "apiServers: 10.0.0.1:6443", "apiServers: [10.0.0.1]",
		"apiServers: ['https://10.0.0.1:6443']", "apiServers: ['fd00::1:6443']", "apiServers: ['']", "replicas: -1",
		"replicas: 6", "replicas: two", "resources: {claims: []}", "resources: {requests: {cpu: [1]}}", "resources: []",
		"priorityClassName: 1", "tolerations: {operator: Exists}", "tolerations: [{operator: Is}]",
		"tolerations: [{efect: NoExecute}]", "nodeSelector: {a: 1}", "nodeSelector: a", "podAnnotations: {a: true}",
		"roles: {create: 'yes'}", "roles: {make: true}", "roles: true",
	} {
		_, err := template(load(t), values(t, text), "theseus-system", kubernetes)
		if err == nil || !strings.Contains(err.Error(), "values don't meet the specifications of the schema") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestRefuses: another namespace, and a Kubernetes that is too old, or that has no admission policies while no
// signatures are demanded either.
func TestRefuses(t *testing.T) {
	if _, err := template(load(t), nil, "default", kubernetes); err == nil ||
		!strings.Contains(err.Error(), "--namespace theseus-system --create-namespace") {
		t.Error(err)
	}
	if _, err := template(load(t), values(t, "metrics: {podMonitor: true}"), "theseus-system",
		kubernetes); err == nil || !strings.Contains(err.Error(), "metrics.enabled is not") {
		t.Error(err)
	}
	if _, err := template(load(t), nil, "theseus-system", "v1.27.16"); err == nil ||
		!strings.Contains(err.Error(), ">=1.28.0-0") {
		t.Error(err)
	}
	for _, version := range []string{"v1.28.0", "v1.29.15-eks-1", "v1.29.15+k3s1"} {
		if _, err := template(load(t), map[string]any{}, "theseus-system", version); err == nil ||
			!strings.Contains(err.Error(), "--set-file allowedSigners=FILE") {
			t.Errorf("%s: %v", version, err)
		}
		made, err := template(load(t), values(t, "allowedSigners: a ssh-ed25519 AAAA"), "theseus-system", version)
		if err != nil {
			t.Fatalf("%s: %v", version, err)
		}
		for name := range objects(t, made) {
			if strings.HasPrefix(name, "ValidatingAdmissionPolicy") {
				t.Errorf("%s: %s is rendered, which this API server does not know", version, name)
			}
		}
	}
	for _, version := range []string{"v1.30.0", "v1.33.4-eks-1", "v1.33.4+k3s1"} {
		if _, err := template(load(t), map[string]any{}, "theseus-system", version); err != nil {
			t.Errorf("%s: %v", version, err)
		}
	}
}

// TestRelease: Helm reads the chart of a release, which names its own image by digest.
func TestRelease(t *testing.T) {
	of := packing.Release{Version: "v0.2.0", Registry: "registry.example.com/infra", Digest: digest,
		Time: time.Unix(1700000000, 0)}
	chart, err := loader.Load(archive(t, of.Pack, of.File()))
	if err != nil {
		t.Fatal(err)
	}
	if chart.Metadata.Name != "theseus" || chart.Metadata.Version != "0.2.0" || chart.Metadata.AppVersion != "v0.2.0" {
		t.Errorf("%+v", chart.Metadata)
	}
	made, err := template(chart, map[string]any{}, "theseus-system", kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	p := partsOf(t, made)
	if got, want := p.deployment.Spec.Template.Spec.Containers[0].Image,
		"registry.example.com/infra/theseus-controller:v0.2.0@"+digest; got != want {
		t.Errorf("the image is %s, want %s", got, want)
	}
	if !strings.HasPrefix(p.notes,
		"The controller v0.2.0 is installed. It runs a plan after one user has approved it.\n") {
		t.Errorf("the notes: %s", p.notes)
	}
}

// TestManifest: the objects that a release has for those without Helm are those that Helm renders with the default
// values. The hook, which only Helm runs, is left out.
func TestManifest(t *testing.T) {
	of := packing.Release{Version: "v0.2.0", Registry: "registry.example.com/infra", Digest: digest,
		Time: time.Unix(1700000000, 0)}
	out := t.TempDir()
	if err := of.Pack(dir, out); err != nil {
		t.Fatal(err)
	}
	if err := of.Render(out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(out, "theseus-0.2.0.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	chart, err := loader.Load(filepath.Join(out, of.File()))
	if err != nil {
		t.Fatal(err)
	}
	made, err := template(chart, map[string]any{}, "theseus-system", kubernetes)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != made.Manifest {
		t.Errorf("the file of the release:\n%s\nHelm renders:\n%s", text, made.Manifest)
	}
	if strings.Contains(string(text), "theseus-uninstall-check") || !strings.Contains(string(text),
		"registry.example.com/infra/theseus-controller:v0.2.0@"+digest) {
		t.Error("the file has the hook of Helm, or not the image of the release")
	}
}
