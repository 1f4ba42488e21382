package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/theseus-cni/theseus/internal/cluster"
)

// apiServer answers from a table: paths to JSON, or to a status code.
type apiServer struct {
	answers map[string]string
	codes   map[string]int
	mu      sync.Mutex
	agents  map[string]bool
	denied  string // a verb
	rules   string // that a SelfSubjectRulesReview lists, as JSON; it lists none, and says so, where empty
	asked   map[string]int
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.agents[r.UserAgent()] = true
	key := r.URL.Path
	if next := r.URL.Query().Get("continue"); next != "" {
		key += "?" + next
	}
	if r.URL.Query().Get("limit") == "" {
		key += s.whole(key)
	}
	s.asked[key]++
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if code := s.codes[key]; code != 0 {
		w.WriteHeader(code)
		reason := map[int]string{403: "Forbidden", 404: "NotFound", 410: "Expired", 401: "Unauthorized",
			500: "InternalError"}[code]
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"no"}`,
			reason, code)
		return
	}
	if r.Method == http.MethodPost { // an access review: everything but eviction, and one verb, is allowed
		var review map[string]any
		_ = json.NewDecoder(r.Body).Decode(&review)
		if review["kind"] == "SelfSubjectRulesReview" {
			status := map[string]any{"incomplete": s.rules == "", "resourceRules": []any{}, "nonResourceRules": []any{}}
			if s.rules != "" {
				status["resourceRules"] = json.RawMessage(s.rules)
			}
			review["status"] = status
			_ = json.NewEncoder(w).Encode(review)
			return
		}
		attributes := review["spec"].(map[string]any)["resourceAttributes"].(map[string]any)
		review["status"] = map[string]any{"allowed": attributes["subresource"] != "eviction" &&
			attributes["verb"] != s.denied, "reason": "said so"}
		_ = json.NewEncoder(w).Encode(review)
		return
	}
	if answer, ok := s.answers[key]; ok {
		fmt.Fprint(w, answer)
		return
	}
	fmt.Fprint(w, `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
}

// whole marks a question without a limit, where the table tells it apart.
func (s *apiServer) whole(key string) string {
	if _, ok := s.answers[key+"#whole"]; ok {
		return "#whole"
	}
	return ""
}

func serve(t *testing.T, answers map[string]string, codes map[string]int) (*apiServer, *Client) {
	t.Helper()
	s := &apiServer{answers: answers, codes: codes, agents: map[string]bool{}, asked: map[string]int{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	client, err := New(&rest.Config{Host: server.URL,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, "v9")
	if err != nil {
		t.Fatal(err)
	}
	return s, client
}

// listOf is a page of objects named name...; each is JSON without its braces.
func listOf(kind, next string, items ...string) string {
	return fmt.Sprintf(`{"kind":%q,"apiVersion":"v1","metadata":{"resourceVersion":"7","continue":%q},"items":[%s]}`,
		kind, next, strings.Join(items, ","))
}

func named(name, more string) string {
	return fmt.Sprintf(
		`{"metadata":{"name":%q,"namespace":"shop","managedFields":[{"manager":"x"}],"annotations":{%q:"{}","keep":"1"}}%s}`,
		name, "kubectl.kubernetes.io/last-applied-configuration", more)
}

func aCluster() (map[string]string, map[string]int) {
	secret := `,"spec":{"containers":[{"name":"c","env":[{"name":"PASSWORD","value":"x"}]}]}`
	answers := map[string]string{
		"/version":           `{"major":"1","minor":"36","gitVersion":"v1.36.3"}`,
		"/api":               `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis":              `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"crd.projectcalico.org","versions":[{"groupVersion":"crd.projectcalico.org/v1","version":"v1"}],"preferredVersion":{"groupVersion":"crd.projectcalico.org/v1","version":"v1"}}]}`,
		"/api/v1":            `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[]}`,
		"/api/v1/namespaces": listOf("NamespaceList", "", `{"metadata":{"name":"kube-system","uid":"uid-1"}}`),
		"/api/v1/nodes":      listOf("NodeList", "", named("n", "")),
		"/api/v1/pods":       listOf("PodList", "p2", named("a", secret)),
		"/api/v1/pods?p2":    listOf("PodList", "p3", named("b", "")),
		"/api/v1/pods?p3":    listOf("PodList", "", named("c", "")),
		// This list is compacted away between its pages.
		"/api/v1/services":                          listOf("ServiceList", "s2", named("old", "")),
		"/api/v1/services#whole":                    listOf("ServiceList", "", named("x", ""), named("y", "")),
		"/api/v1/namespaces/kube-system/configmaps": listOf("ConfigMapList", "", named("kube-proxy", "")),
		"/apis/crd.projectcalico.org/v1": `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"crd.projectcalico.org/v1","resources":[
			{"name":"ippools","kind":"IPPool","verbs":["list"]},{"name":"ippools/status","kind":"IPPool","verbs":["get"]},
			{"name":"ipamhandles","kind":"IPAMHandle","verbs":["list"]},{"name":"ipamblocks","kind":"IPAMBlock","verbs":["list"]}]}`,
		"/apis/crd.projectcalico.org/v1/ippools": `{"kind":"IPPoolList","apiVersion":"crd.projectcalico.org/v1","metadata":{"resourceVersion":"7"},"items":[
			{"apiVersion":"crd.projectcalico.org/v1","kind":"IPPool","metadata":{"name":"pool"}}]}`,
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions": `{"kind":"CustomResourceDefinitionList","apiVersion":"apiextensions.k8s.io/v1","metadata":{},"items":[
			{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"ippools.crd.projectcalico.org"},"spec":{"group":"crd.projectcalico.org","versions":[{"name":"v1","schema":{"long":"text"}}]}},
			{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"odd.example.org"},"spec":{"group":"example.org"}}]}`,
	}
	answers["/apis/apiregistration.k8s.io/v1/apiservices"] =
		`{"kind":"APIServiceList","apiVersion":"apiregistration.k8s.io/v1","metadata":{},"items":[
		{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.apps"},"spec":{"service":null}},
		{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.metrics"},"spec":{"service":{"name":"metrics"}}}]}`
	answers["/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"] =
		`{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1","metadata":{},"items":[
		{"metadata":{"name":"kubernetes"},"ports":[{"name":"https","port":6443}],"endpoints":[{"addresses":["192.0.2.2"]},{"addresses":["192.0.2.1"]}]}]}`
	for path, kind := range map[string]string{"resourcequotas": "ResourceQuota", "limitranges": "LimitRange"} {
		answers["/api/v1/"+path] = listOf(kind+"List", "", fmt.Sprintf(
			`{"apiVersion":"v1","kind":%q,"metadata":{"name":"bound","namespace":"shop"}}`, kind))
	}
	codes := map[string]int{
		"/api/v1/services?s2":                       410,
		"/apis/policy/v1/poddisruptionbudgets":      403,
		"/apis/batch/v1/jobs":                       404,
		"/apis/crd.projectcalico.org/v1/ipamblocks": 403,
	}
	return answers, codes
}

func TestSnapshot(t *testing.T) {
	server, client := serve(t, nil, nil)
	server.answers, server.codes = aCluster()
	s, err := Snapshot(context.Background(), client, "v9", time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	var pods, services []string
	for _, o := range s.Pods {
		pods = append(pods, o.Name)
	}
	for _, o := range s.Services {
		services = append(services, o.Name)
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, pods); diff != "" {
		t.Error("pages:", diff)
	}
	if diff := cmp.Diff([]string{"x", "y"}, services); diff != "" {
		t.Error("a list that was compacted away:", diff)
	}
	if s.UID != "uid-1" || s.Kubernetes != "v1.36.3" || s.Theseus != "v9" || !server.agents["theseus/v9"] ||
		len(server.agents) != 1 {
		t.Errorf("uid %q, kubernetes %q, theseus %q, agents %v", s.UID, s.Kubernetes, s.Theseus, server.agents)
	}
	if want := []string{"192.0.2.1:6443", "192.0.2.2:6443"}; !slices.Equal(s.APIServers, want) {
		t.Errorf("API servers %v, want %v", s.APIServers, want)
	}
	if o := s.Pods[0]; o.ManagedFields != nil || len(o.Annotations) != 1 || o.Spec.Containers[0].Env[0].Value != "" {
		t.Errorf("not trimmed: %+v", o)
	}
	var others []string
	for _, o := range s.Other {
		others = append(others, o.GetName())
	}
	want := []string{"ippools.crd.projectcalico.org", "v1.metrics", "pool", "bound", "bound"}
	if diff := cmp.Diff(want, others); diff != "" {
		t.Error("other:", diff)
	}
	if text := fmt.Sprint(s.Other[0].Object); strings.Contains(text, "schema") {
		t.Errorf("the definition kept its schema: %s", text)
	}
}

// TestSnapshotOfPolicies: policies of every kind that the API server serves are read, also where a group has them in
// different versions, and CRDs of kinds of policies that no one knows are kept. What is not served is no error.
func TestSnapshotOfPolicies(t *testing.T) {
	server, client := serve(t, nil, nil)
	server.answers, server.codes = aCluster()
	const group = "policy.networking.k8s.io"
	version := func(group, name string) string {
		return fmt.Sprintf(`{"groupVersion":"%s/%s","version":%q}`, group, name, name)
	}
	server.answers["/apis"] = fmt.Sprintf(`{"kind":"APIGroupList","apiVersion":"v1","groups":[
		{"name":%q,"versions":[%s,%s],"preferredVersion":%s},{"name":"k8s.ovn.org","versions":[%s],"preferredVersion":%s},
		{"name":"metallb.io","versions":[%s,%s],"preferredVersion":%s}]}`, group,
		version(group, "v1alpha2"), version(group, "v1alpha1"), version(group, "v1alpha2"),
		version("k8s.ovn.org", "v1"), version("k8s.ovn.org", "v1"),
		version("metallb.io", "v1beta2"), version("metallb.io", "v1beta1"), version("metallb.io", "v1beta2"))
	kinds := func(version string, kinds ...string) {
		var all []string
		for _, kind := range kinds {
			plural := strings.ToLower(strings.TrimSuffix(kind, "y"))
			if plural += "ies"; !strings.HasSuffix(kind, "y") {
				plural = strings.ToLower(kind) + "s"
			}
			all = append(all, fmt.Sprintf(`{"name":%q,"kind":%q,"verbs":["list"]}`, plural, kind))
			server.answers["/apis/"+version+"/"+plural] = fmt.Sprintf(`{"kind":"%[1]sList","apiVersion":%[2]q,"metadata":{},
				"items":[{"apiVersion":%[2]q,"kind":%[1]q,"metadata":{"name":"of %[2]s"}}]}`, kind, version)
		}
		server.answers["/apis/"+version] = fmt.Sprintf(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":%q,
			"resources":[%s]}`, version, strings.Join(all, ","))
	}
	kinds(group+"/v1alpha2", "ClusterNetworkPolicy")
	kinds(group+"/v1alpha1", "AdminNetworkPolicy", "BaselineAdminNetworkPolicy")
	kinds("k8s.ovn.org/v1", "EgressFirewall", "EgressIP")
	kinds("metallb.io/v1beta2", "BGPPeer")
	kinds("metallb.io/v1beta1", "BGPPeer", "IPAddressPool")
	server.codes["/apis/"+group+"/v1alpha1/baselineadminnetworkpolicies"] = 403
	server.answers["/apis/apiextensions.k8s.io/v1/customresourcedefinitions"] = `{"kind":"CustomResourceDefinitionList",
		"apiVersion":"apiextensions.k8s.io/v1","metadata":{},"items":[{"apiVersion":"apiextensions.k8s.io/v1",
		"kind":"CustomResourceDefinition","metadata":{"name":"oddnetworkpolicies.example.org"},
		"spec":{"group":"example.org","names":{"kind":"OddNetworkPolicy"},"versions":[{"name":"v1","schema":{}}]}}]}`
	s, err := Snapshot(context.Background(), client, "v9", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range s.Other {
		if kind := o.GetKind(); kind != "APIService" && kind != "ResourceQuota" && kind != "LimitRange" {
			got = append(got, kind+" "+o.GetName())
		}
	}
	slices.Sort(got)
	want := []string{"AdminNetworkPolicy of " + group + "/v1alpha1", "BGPPeer of metallb.io/v1beta2",
		"ClusterNetworkPolicy of " + group + "/v1alpha2", "CustomResourceDefinition oddnetworkpolicies.example.org",
		"EgressFirewall of k8s.ovn.org/v1", "IPAddressPool of metallb.io/v1beta1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for resource, want := range map[string]string{group: "", "crd.antrea.io": "",
		"adminnetworkpolicies." + group: "", "baselineadminnetworkpolicies." + group: "forbidden",
		"clusternetworkpolicies.crd.antrea.io": "not in the input"} {
		if _, why := s.Has(resource); why != want {
			t.Errorf("%s: missing %q, want %q", resource, why, want)
		}
	}
	// A group that discovery does not answer for is not silently without policies, and is asked each
	// time.
	server.codes["/apis/"+group+"/v1alpha1"] = 500
	if s, err = Snapshot(context.Background(), client, "v9", time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, why := s.Has(group); !strings.HasPrefix(why, "error: ") {
		t.Errorf("%s: missing %q", group, why)
	}
}

func TestSnapshotSaysWhatIsMissing(t *testing.T) {
	server, client := serve(t, nil, nil)
	server.answers, server.codes = aCluster()
	server.denied = "delete"
	server.codes["/api/v1/namespaces/kube-flannel/configmaps"] = 403
	server.codes["/apis/apps/v1/statefulsets"] = 500
	server.codes["/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"] = 403
	s, err := Snapshot(context.Background(), client, "v9", time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for resource, want := range map[string]string{
		"pods":                              "",
		"ippools.crd.projectcalico.org":     "",
		"crd.projectcalico.org":             "",
		"rights":                            "",
		"poddisruptionbudgets":              "forbidden",
		"jobs":                              "not served by this API server",
		"configmaps":                        "namespace kube-flannel: forbidden",
		"ipamblocks.crd.projectcalico.org":  "forbidden",
		"ipamhandles.crd.projectcalico.org": "not read: there is one for each pod",
		"statefulsets":                      "error: ",
		"endpointslices.discovery.k8s.io":   "forbidden",
	} {
		if _, why := s.Has(resource); why != want && (want != "error: " || !strings.HasPrefix(why, want)) {
			t.Errorf("%s: missing %q, want %q", resource, why, want)
		}
	}
	var denied []cluster.Right
	for _, right := range s.Rights {
		if !right.Allowed {
			denied = append(denied, right)
		}
	}
	lacks := func(resource string) cluster.Right {
		return cluster.Right{Verb: "delete", Group: "theseus.dev", Resource: resource, Namespace: "theseus-system",
			Reason: "said so"}
	}
	want := []cluster.Right{lacks("migrations"), lacks("planpages"), lacks("nodetasks")}
	if diff := cmp.Diff(want, denied); diff != "" {
		t.Error(diff)
	}
}

func TestSnapshotOfNothing(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	client, err := New(&rest.Config{Host: gone.URL}, "v9")
	if err != nil {
		t.Fatal(err)
	}
	var unreachable *UnreachableError
	if _, err := Snapshot(context.Background(), client, "v9", time.Time{}); !errors.As(err, &unreachable) ||
		!strings.Contains(err.Error(), "cannot be reached") || unreachable.Hint() == "" {
		t.Errorf("got %v", err)
	}
	_, client = serve(t, nil, map[string]int{"/version": 401})
	if _, err := Snapshot(context.Background(), client, "v9", time.Time{}); !errors.As(err, &unreachable) ||
		!strings.Contains(err.Error(), "credentials") {
		t.Errorf("got %v", err)
	}
	answers, codes := aCluster()
	_, client = serve(t, answers, codes)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Snapshot(ctx, client, "v9", time.Time{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
