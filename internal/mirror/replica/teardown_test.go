package replica

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/theseus-cni/theseus/internal/cluster/kube"
)

// mirrorAPI is the API server of a mirror with a namespace, three claims and their volumes. It forgets what is deleted,
// and a volume with the policy Delete two looks after its claim. The real one is asked in lab/test/mirror.
type mirrorAPI struct {
	lock      sync.Mutex
	gone      []string
	looks     int
	forbidden bool // claims' neighbours, Secrets, may not be listed
}

func (m *mirrorAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.lock.Lock()
	defer m.lock.Unlock()
	const mark = `"labels":{"mirror.theseus.dev/of":"blue"},"managedFields":[{"manager":"theseus-mirror","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{}}]`
	objects := map[string]string{
		"namespaces/shop":                  `{"metadata":{"name":"shop","uid":"n",` + mark + `}}`,
		"persistentvolumeclaims/data":      `{"metadata":{"name":"data","namespace":"shop","uid":"c1",` + mark + `}}`,
		"persistentvolumeclaims/kept":      `{"metadata":{"name":"kept","namespace":"shop","uid":"c2",` + mark + `}}`,
		"persistentvolumes/pv-data":        `{"metadata":{"name":"pv-data","uid":"v1"},"spec":{"persistentVolumeReclaimPolicy":"Delete","claimRef":{"namespace":"shop","name":"data"}}}`,
		"persistentvolumes/pv-kept":        `{"metadata":{"name":"pv-kept","uid":"v2"},"spec":{"persistentVolumeReclaimPolicy":"Retain","csi":{"volumeHandle":"vol-0abc"},"claimRef":{"namespace":"shop","name":"kept"}}}`,
		"persistentvolumes/pv-of-somebody": `{"metadata":{"name":"pv-of-somebody","uid":"v3"},"spec":{"persistentVolumeReclaimPolicy":"Retain","claimRef":{"namespace":"other","name":"data"}}}`,
	}
	for _, name := range m.gone {
		delete(objects, name)
	}
	path := strings.TrimPrefix(strings.Replace(r.URL.Path, "/api/v1/namespaces/shop/", "/api/v1/", 1), "/api/v1/")
	kind := map[string]string{"namespaces": "Namespace", "persistentvolumes": "PersistentVolume",
		"persistentvolumeclaims": "PersistentVolumeClaim", "secrets": "Secret"}[path]
	w.Header().Set("Content-Type", "application/json")
	status := func(code int, reason string) {
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
	}
	switch {
	case r.URL.Path == "/api":
		fmt.Fprint(w, `{"kind":"APIVersions","versions":["v1"]}`)
	case r.URL.Path == "/apis":
		fmt.Fprint(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
	case r.URL.Path == "/api/v1":
		var resources []string
		for name, kind := range map[string]string{"namespaces": "Namespace", "persistentvolumes": "PersistentVolume",
			"persistentvolumeclaims": "PersistentVolumeClaim", "secrets": "Secret"} {
			resources = append(resources,
				fmt.Sprintf(`{"name":%q,"kind":%q,"namespaced":%v,"verbs":["list","create","get","delete"]}`,
					name, kind, name == "secrets" || name == "persistentvolumeclaims"))
		}
		fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[%s]}`,
			strings.Join(resources, ","))
	case kind == "Secret" && m.forbidden:
		status(http.StatusForbidden, "Forbidden")
	case kind != "":
		var items []string
		for name, text := range objects {
			if strings.HasPrefix(name, path+"/") {
				items = append(items, text)
			}
		}
		fmt.Fprintf(w, `{"kind":"%sList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[%s]}`,
			kind, strings.Join(items, ","))
	case r.Method == http.MethodDelete && objects[path] != "":
		m.gone = append(m.gone, path)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
	case objects[path] == "":
		status(http.StatusNotFound, "NotFound")
	default:
		if path == "persistentvolumes/pv-data" {
			if m.looks++; m.looks == 2 {
				m.gone = append(m.gone, path)
			}
		}
		fmt.Fprint(w, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",`+
			strings.TrimPrefix(objects[path], "{"))
	}
}

// TestTeardownVolumes: what is behind the claims goes too, and is waited for; what a reclaim policy keeps is named, as
// it costs money; and a namespace stays in which others may have something that cannot be seen.
func TestTeardownVolumes(t *testing.T) {
	api := &mirrorAPI{}
	server := httptest.NewServer(api)
	defer server.Close()
	client, err := kube.New(&rest.Config{Host: server.URL}, "test")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Connect(client)
	if err != nil {
		t.Fatal(err)
	}
	stays := func() (removal *Removal, all []string) {
		t.Helper()
		removal, err := c.Copies(t.Context(), "blue", []string{"shop"})
		if err != nil {
			t.Fatal(err)
		}
		for _, left := range removal.Stays {
			all = append(all, left.Key.String()+": "+left.Why)
		}
		return removal, all
	}
	const kept = "PersistentVolume pv-kept: its reclaim policy keeps vol-0abc, which costs money until you delete both"
	api.forbidden = true
	if removal, left := stays(); len(left) != 2 || !slices.Contains(left, kept) || !slices.Contains(left,
		"Namespace shop: it may have other objects that cannot be read: Secret") || len(removal.Delete) != 2 {
		t.Errorf("with what cannot be read it keeps %q, and deletes %v", left, removal.Delete)
	}
	api.forbidden = false
	removal, left := stays()
	if !slices.Equal(left, []string{kept}) || len(removal.Delete) != 3 {
		t.Errorf("it keeps %q, and deletes %v", left, removal.Delete)
	}
	var said []string
	if err := c.Remove(t.Context(), removal, func(text string) { said = append(said, text) }); err != nil {
		t.Fatal(err)
	}
	if api.looks < 2 || !slices.ContainsFunc(said,
		func(text string) bool { return strings.Contains(text, "PersistentVolume pv-data") }) {
		t.Errorf("after %d looks at the volume it said %q", api.looks, said)
	}
	if slices.Contains(api.gone, "persistentvolumes/pv-kept") ||
		slices.Contains(api.gone, "persistentvolumes/pv-of-somebody") {
		t.Errorf("gone is %q", api.gone)
	}
}
