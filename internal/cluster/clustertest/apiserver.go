package clustertest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
)

// APIServer serves lists and watches of objects, as an API server does, and fails when it is told to.
type APIServer struct {
	Config *rest.Config

	lock    sync.Mutex
	version int64
	objects map[string]map[string]entry // by resource and name
	events  []entry
	changed chan struct{} // closed with the next change
	cut     chan struct{} // closed to end all watches
	gone    int64         // watches from before this version are refused: 410

	down, deaf, denied bool
}

// entry is an object, or an event about it.
type entry struct {
	resource, event string
	version         int64
	object          map[string]any
}

// NewAPIServer serves until the test ends.
func NewAPIServer(t testing.TB) *APIServer {
	s := &APIServer{objects: map[string]map[string]entry{}, changed: make(chan struct{}),
		cut: make(chan struct{}), version: 9}
	server := httptest.NewServer(s)
	t.Cleanup(func() {
		s.Cut()
		server.CloseClientConnections()
		server.Close()
	})
	s.Config = &rest.Config{Host: server.URL}
	return s
}

// Put writes an object of one of Theseus' own kinds.
func (s *APIServer) Put(t testing.TB, kind, name string, object any) {
	t.Helper()
	resource := manifest.Plural(kind)
	text, err := json.Marshal(object)
	var fields map[string]any
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.version++
	event := "MODIFIED"
	before, known := s.objects[resource][name]
	if !known {
		event = "ADDED"
	}
	metadata, _ := fields["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["generation"] = s.generation(before, fields)
	if old, is := before.object["metadata"].(map[string]any); is {
		metadata["uid"] = old["uid"]
	} else {
		metadata["uid"] = fmt.Sprint("made-at-", s.version)
	}
	metadata["name"], metadata["namespace"], metadata["resourceVersion"] = name, v1alpha1.Namespace,
		strconv.FormatInt(s.version, 10)
	fields["metadata"], fields["apiVersion"], fields["kind"] = metadata, v1alpha1.APIVersion, kind
	if s.objects[resource] == nil {
		s.objects[resource] = map[string]entry{}
	}
	s.objects[resource][name] = entry{resource, event, s.version, fields}
	s.tell(s.objects[resource][name])
}

// generation grows with the content of an object.
func (s *APIServer) generation(before entry, fields map[string]any) float64 {
	old, _ := before.object["metadata"].(map[string]any)
	number, _ := old["generation"].(float64)
	for _, content := range []string{"spec", "status"} {
		if !reflect.DeepEqual(before.object[content], fields[content]) {
			return number + 1
		}
	}
	return number
}

// Delete removes an object.
func (s *APIServer) Delete(kind, name string) {
	resource := manifest.Plural(kind)
	s.lock.Lock()
	defer s.lock.Unlock()
	s.version++
	last := s.objects[resource][name]
	delete(s.objects[resource], name)
	metadata := maps.Clone(last.object["metadata"].(map[string]any))
	metadata["resourceVersion"] = strconv.FormatInt(s.version, 10)
	object := maps.Clone(last.object)
	object["metadata"] = metadata
	s.tell(entry{resource, "DELETED", s.version, object})
}

func (s *APIServer) tell(event entry) {
	s.events = append(s.events, event)
	close(s.changed)
	s.changed = make(chan struct{})
}

// Cut ends all watches.
func (s *APIServer) Cut() {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.end()
}

// end ends all watches. The caller holds the lock.
func (s *APIServer) end() {
	close(s.cut)
	s.cut = make(chan struct{})
}

// Forget ends all watches, and refuses to go on with them from where they were.
func (s *APIServer) Forget() {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.version++
	s.gone, s.events = s.version, nil
	s.end()
}

// Down makes every request fail, or ends that.
func (s *APIServer) Down(down bool) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.down = down
	s.end()
}

// Deaf makes watches bring nothing although they are open, or ends that.
func (s *APIServer) Deaf(deaf bool) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.deaf = deaf
	close(s.changed)
	s.changed = make(chan struct{})
}

// Deny refuses new watches, as for a user without the right, or ends that.
func (s *APIServer) Deny(denied bool) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.denied = denied
	s.end()
}

// ServeHTTP implements http.Handler.
func (s *APIServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.lock.Lock()
	down, denied := s.down, s.denied
	_, defined := s.objects[path.Base(r.URL.Path)]
	s.lock.Unlock()
	query := r.URL.Query()
	version, _ := strconv.ParseInt(query.Get("resourceVersion"), 10, 64)
	switch watches := query.Get("watch") == "true" || query.Get("watch") == "1"; {
	case down:
		panic(http.ErrAbortHandler) // the connection ends
	case !defined:
		refuse(w, http.StatusNotFound, "NotFound")
	case watches && denied:
		refuse(w, http.StatusForbidden, "Forbidden")
	case watches && query.Get("sendInitialEvents") == "true":
		refuse(w, http.StatusUnprocessableEntity, "Invalid") // as one without streams of lists
	case watches:
		s.stream(w, r, version)
	default:
		s.list(w, r)
	}
}

func refuse(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(status(code, reason))
}

func status(code int, reason string) map[string]any {
	return map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason,
		"message": "refused: " + reason, "code": code}
}

func (s *APIServer) list(w http.ResponseWriter, r *http.Request) {
	resource := path.Base(r.URL.Path)
	bare := strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList")
	s.lock.Lock()
	list := map[string]any{"apiVersion": v1alpha1.APIVersion, "kind": "List",
		"metadata": map[string]any{"resourceVersion": strconv.FormatInt(s.version, 10)}}
	items := []any{}
	for _, name := range slices.Sorted(maps.Keys(s.objects[resource])) {
		object := s.objects[resource][name].object
		if only, selects := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name="); selects &&
			only != name {
			continue
		}
		if list["kind"] = object["kind"].(string) + "List"; bare {
			object = map[string]any{"metadata": object["metadata"]}
		}
		items = append(items, object)
	}
	s.lock.Unlock()
	if list["items"] = items; bare {
		list["apiVersion"], list["kind"] = "meta.k8s.io/v1", "PartialObjectMetadataList"
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(list) // the client may have gone
}

// stream sends what has happened since a version, and then what happens, until the watch is cut off.
func (s *APIServer) stream(w http.ResponseWriter, r *http.Request, since int64) {
	s.lock.Lock()
	cut, gone := s.cut, s.gone
	s.lock.Unlock()
	bare := strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	if since < gone { // an API server says so by an event
		_ = json.NewEncoder(w).Encode(map[string]any{"type": "ERROR", "object": status(http.StatusGone, "Expired")})
		return
	}
	for {
		s.lock.Lock()
		events, changed, deaf, ended := s.events, s.changed, s.deaf, s.cut != cut
		s.lock.Unlock()
		if ended {
			return
		}
		for i := range events {
			if events[i].version <= since || events[i].resource != path.Base(r.URL.Path) || deaf {
				continue
			}
			since = events[i].version
			object := events[i].object
			if bare {
				object = map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
					"metadata": object["metadata"]}
			}
			if json.NewEncoder(w).Encode(map[string]any{"type": events[i].event, "object": object}) != nil {
				return
			}
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-cut:
			return
		case <-r.Context().Done():
			return
		}
	}
}
