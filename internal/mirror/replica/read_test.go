package replica

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/mirror/objects"
)

// answers is a cluster whose API server gives one answer after another, and what it was asked. The real one is asked in
// lab/test/mirror.
func answers(t *testing.T, texts ...string) (*Cluster, *[]string) {
	t.Helper()
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.String())
		code, text := http.StatusOK, texts[min(len(asked), len(texts))-1]
		if number, rest, ok := strings.Cut(text, " "); ok {
			if _, err := fmt.Sscan(number, &code); err == nil {
				text = rest
			}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprint(w, text)
	}))
	t.Cleanup(server.Close)
	client, err := kube.New(&rest.Config{Host: server.URL}, "test")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Connect(client)
	if err != nil {
		t.Fatal(err)
	}
	return c, &asked
}

var (
	configMaps = kind{schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		schema.GroupKind{Kind: "ConfigMap"}, true}
	databases = kind{schema.GroupVersionResource{Group: "example.com", Version: "v2", Resource: "databases"},
		schema.GroupKind{Group: "example.com", Kind: "Database"}, true}
)

const gone = `410 {"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`

// TestList: pages are put together, what lists leave out is filled in, and a list that grew too old is read again.
func TestList(t *testing.T) {
	first := `{"kind":"ConfigMapList","metadata":{"resourceVersion":"7","continue":"next page"},"items":[{"metadata":{"name":"a"},"data":{"n":"1"}}]}`
	last := `{"kind":"ConfigMapList","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"b"}}]}`
	c, asked := answers(t, first, gone, first, last)
	found, version, err := c.list(t.Context(), configMaps, "shop")
	if err != nil || version != "7" || len(found) != 2 {
		t.Fatalf("%v, version %s: %v", found, version, err)
	}
	if key := (objects.Key{Kind: "ConfigMap", Name: "b"}); objects.KeyOf(found[1]) != key ||
		found[1].GetAPIVersion() != "v1" {
		t.Errorf("%s, of %s", objects.KeyOf(found[1]), found[1].GetAPIVersion())
	}
	if want := "/api/v1/namespaces/shop/configmaps?"; len(*asked) != 4 || !strings.HasPrefix((*asked)[0], want) ||
		!strings.Contains((*asked)[1], "continue=next+page") || !strings.Contains((*asked)[0], "limit=500") {
		t.Errorf("it asked %q", *asked)
	}

	c, asked = answers(t,
		`{"kind":"DatabaseList","metadata":{},"items":[{"apiVersion":"example.com/v2","kind":"Database","metadata":{"name":"a"},"spec":{"size":9007199254740993,"share":0.5}}]}`)
	if found, _, err = c.list(t.Context(), databases, ""); err != nil || len(found) != 1 {
		t.Fatalf("%v: %v", found, err)
	}
	if spec := found[0].Object["spec"].(map[string]any); spec["size"] != int64(9007199254740993) ||
		spec["share"] != 0.5 {
		t.Errorf("the numbers are %v", spec)
	}
	if !strings.HasPrefix((*asked)[0], "/apis/example.com/v2/databases?") {
		t.Errorf("it asked %q", *asked)
	}
}

// TestNoList: what is no list is an error, never a list without items, after which all would be deleted.
func TestNoList(t *testing.T) {
	for text, says := range map[string]string{
		`{"kind":"Status","apiVersion":"v1","status":"Success"}`: `answers with "Status" instead of a list`,
		`{}`:                                   `answers with "" instead of a list`,
		`<html>sign in</html>`:                 "invalid character",
		`{"kind":"ConfigMapList","items":[7]}`: "cannot unmarshal",
		``:                                     "unexpected end",
	} {
		c, _ := answers(t, text)
		if found, _, err := c.list(t.Context(), configMaps, "shop"); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, %v, want %q", text, found, err, says)
		}
	}
	for text, is := range map[string]func(error) bool{
		`403 {"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no"}`:              apierrors.IsForbidden,
		`405 {"kind":"Status","apiVersion":"v1","status":"Failure","reason":"MethodNotAllowed","code":405}`:                      apierrors.IsMethodNotSupported,
		`404 {"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"the server could"}`: apierrors.IsNotFound,
		gone: apierrors.IsResourceExpired,
	} {
		c, _ := answers(t, text)
		if _, _, err := c.list(t.Context(), configMaps, "shop"); !is(err) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestFailures: what a mirror says when it does not take an object, without what differs between objects, and what to
// try.
func TestFailures(t *testing.T) {
	object := schema.GroupResource{Resource: "configmaps"}
	for _, c := range []struct {
		err         error
		cause, hint string
	}{
		{apierrors.NewInternalError(fmt.Errorf(
			`failed calling webhook "a.example.com": failed to call webhook: Post "https://127.0.0.1:1/": dial tcp 127.0.0.1:1: connect: connection refused`)),
			"its admission webhook a.example.com cannot be called: failed to call webhook: Post",
			"start the pods of the webhook"},
		{apierrors.NewForbidden(object, "a",
			fmt.Errorf(`admission webhook "a.example.com" denied the request: nothing passes here`)),
			"its admission webhook a.example.com denies: nothing passes here", "exempt the field manager's user"},
		{apierrors.NewForbidden(object, "a", fmt.Errorf("no right")), "no right", "use a context with that right"},
		{apierrors.NewTooManyRequests("try later", 1), "try later", "use fewer --workers"},
		{apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "a", nil), "is invalid",
			"the mirror rejects an object of the original"},
		{fmt.Errorf("anything"), "anything", "objects that were written"},
	} {
		if cause, hint := Cause(c.err), FailureHint(c.err); !strings.Contains(cause, c.cause) ||
			!strings.Contains(hint, c.hint) {
			t.Errorf("%v:\n%s\n%s", c.err, cause, hint)
		}
	}
	refused := notTaken(
		&Pass{Failures: []Failure{{objects.Key{Name: "a"}, fmt.Errorf("its owner is not on the mirror")},
			{objects.Key{Name: "b"}, apierrors.NewTooManyRequests("try later", 1)},
			{objects.Key{Name: "c"}, apierrors.NewTooManyRequests("try later", 1)}}}).(*Refusal)
	if !strings.HasPrefix(refused.Error(), "the mirror did not take 3 objects: 2 times try later") ||
		!strings.Contains(refused.Hint(), "--workers") {
		t.Errorf("%v, hint %s", refused, refused.Hint())
	}
	if passes(apierrors.NewInternalError(fmt.Errorf(`failed calling webhook "a.example.com": refused`))) ||
		!passes(apierrors.NewTooManyRequests("later", 1)) {
		t.Error("a webhook that cannot be called is waited for, or a server that throttles is not")
	}
}
