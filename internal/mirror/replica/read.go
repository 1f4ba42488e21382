package replica

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/mirror/objects"
)

const (
	pageSize = 500 // objects of one page of a list
	readers  = 8   // lists under way at once
)

// Cluster is one of the two.
type Cluster struct {
	*kube.Client
	objects dynamic.Interface
	lists   rest.Interface
	writer  metadata.Interface
}

// Connect makes a Cluster of a client. It asks the API server as fast as that answers: the server's own fairness
// bounds it, and says so with 429.
func Connect(client *kube.Client) (*Cluster, error) {
	config := rest.CopyConfig(client.Config)
	config.QPS, config.Burst = -1, 0
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	writer, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	lists, err := rest.UnversionedRESTClientFor(dynamic.ConfigFor(config))
	return &Cluster{client, objects, lists, writer}, err
}

// kind is a resource that can be listed and written.
type kind struct {
	resource   schema.GroupVersionResource
	group      schema.GroupKind
	namespaced bool
}

// kinds asks which kinds the cluster serves, each in the version that the server prefers. A group that does not
// answer (an aggregated API whose service is down) is in unread.
func (c *Cluster) kinds() (all []kind, versions map[schema.GroupKind][]string, unread []string, err error) {
	c.Discovery.Invalidate()
	preferred, err := discovery.ServerPreferredResources(c.Discovery)
	var failed *discovery.ErrGroupDiscoveryFailed
	if errors.As(err, &failed) {
		for group := range failed.Groups {
			unread = append(unread, group.Group)
		}
	} else if err != nil {
		return nil, nil, nil, &kube.UnreachableError{Host: c.Config.Host, Err: err}
	}
	for _, list := range preferred {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, nil, nil, err
		}
		for _, one := range list.APIResources {
			if strings.Contains(one.Name, "/") || !slices.Contains(one.Verbs, "list") ||
				!slices.Contains(one.Verbs, "create") {
				continue
			}
			all = append(all, kind{group.WithResource(one.Name),
				schema.GroupKind{Group: group.Group, Kind: one.Kind}, one.Namespaced})
		}
	}
	_, lists, err := c.Discovery.ServerGroupsAndResources()
	if err != nil && !errors.As(err, &failed) {
		return nil, nil, nil, err
	}
	versions = map[schema.GroupKind][]string{}
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, nil, nil, err
		}
		for _, one := range list.APIResources {
			if !strings.Contains(one.Name, "/") {
				key := schema.GroupKind{Group: group.Group, Kind: one.Kind}
				versions[key] = append(versions[key], group.Version)
			}
		}
	}
	slices.SortFunc(all, func(a, b kind) int { return strings.Compare(a.resource.String(), b.resource.String()) })
	return all, versions, unread, nil
}

// common moves the kinds of the original to a version that the mirror serves as well. A kind that the mirror does
// not know stays as it is: its definition may be about to be copied.
func common(kinds []kind, original, mirror map[schema.GroupKind][]string) ([]kind, error) {
	var problems []error
	for i := range kinds {
		there := mirror[kinds[i].group]
		if len(there) == 0 || slices.Contains(there, kinds[i].resource.Version) {
			continue
		}
		var both []string
		for _, name := range original[kinds[i].group] {
			if slices.Contains(there, name) {
				both = append(both, name)
			}
		}
		if len(both) == 0 {
			problems = append(problems, fmt.Errorf("%s: the original serves %s and the mirror %s", kinds[i].group,
				strings.Join(original[kinds[i].group], ", "), strings.Join(there, ", ")))
			continue
		}
		slices.SortFunc(both, version.CompareKubeAwareVersionStrings)
		kinds[i].resource.Version = both[len(both)-1]
	}
	return kinds, errors.Join(problems...)
}

// unusedKinds are kinds that no mirror gets and that are many, or that may not be listed.
func unusedKinds() []string {
	return []string{"Event", "Event.events.k8s.io", "Lease.coordination.k8s.io", "Node", "ControllerRevision.apps",
		"CSINode.storage.k8s.io", "VolumeAttachment.storage.k8s.io", "CertificateSigningRequest.certificates.k8s.io",
		"PodMetrics.metrics.k8s.io", "NodeMetrics.metrics.k8s.io", "ComponentStatus"}
}

// reading is what was read of a cluster.
type reading struct {
	objects []objects.Object
	refused map[schema.GroupKind]error // kinds that the user may not read
	seen    []seen
}

// seen is a list and the moment of which it is.
type seen struct {
	cluster   *Cluster
	kind      kind
	namespace string
	version   string
}

// read lists all objects of the namespaces, and all cluster-wide ones.
func (c *Cluster) read(ctx context.Context, kinds []kind, namespaces []string) (reading, error) {
	var lock sync.Mutex
	result := reading{refused: map[schema.GroupKind]error{}}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	list := func(k kind, namespace string) {
		group.Go(func() error {
			found, version, err := c.list(ctx, k, namespace)
			lock.Lock()
			defer lock.Unlock()
			switch {
			case apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err):
				result.refused[k.group] = err
				return nil
			case apierrors.IsNotFound(err): // its definition went away meanwhile
				return nil
			case err != nil:
				return fmt.Errorf("reading %s: %w", k.resource.GroupResource(), err)
			}
			result.objects = append(result.objects, found...)
			result.seen = append(result.seen, seen{c, k, namespace, version})
			return nil
		})
	}
	for _, k := range kinds {
		if slices.Contains(unusedKinds(), k.group.String()) {
			continue
		}
		if !k.namespaced {
			list(k, "")
			continue
		}
		for _, namespace := range namespaces {
			list(k, namespace)
		}
	}
	return result, group.Wait()
}

// list reads all pages. A list that grew too old between two pages is read again.
func (c *Cluster) list(ctx context.Context, k kind, namespace string) (objects []objects.Object,
	version string, err error) {
	for next := ""; ; {
		page, err := retried(ctx, func(ctx context.Context) (*page, error) { return c.page(ctx, k, namespace, next) })
		if apierrors.IsResourceExpired(err) && next != "" {
			objects, next = nil, ""
			continue
		}
		if err != nil {
			return nil, "", err
		}
		for _, item := range page.Items {
			object := &unstructured.Unstructured{Object: item}
			if object.GetKind() == "" { // as in lists of all kinds of Kubernetes' own
				object.SetGroupVersionKind(k.group.WithVersion(k.resource.Version))
			}
			objects = append(objects, object)
		}
		if next = page.Metadata.Continue; next == "" {
			return objects, page.Metadata.ResourceVersion, nil
		}
	}
}

// page is a part of a list.
type page struct {
	Kind     string           `json:"kind"`
	Metadata metav1.ListMeta  `json:"metadata"`
	Items    []map[string]any `json:"items"`
}

// page decodes what the server says in one go: the dynamic client parses each object several times.
func (c *Cluster) page(ctx context.Context, k kind, namespace, next string) (*page, error) {
	root := "/apis"
	if k.group.Group == "" {
		root = "/api"
	}
	result := c.lists.Get().AbsPath(root, k.resource.Group, k.resource.Version).NamespaceIfScoped(namespace,
		namespace != "").Resource(k.resource.Resource).
		Param("limit", strconv.Itoa(pageSize)).Param("continue", next).Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	data, err := result.Raw()
	if err != nil {
		return nil, err
	}
	found := &page{}
	if err := json.Unmarshal(data, found); err != nil {
		return nil, err
	}
	if !strings.HasSuffix(found.Kind, "List") { // an empty one would have everything deleted
		return nil, fmt.Errorf("the API server answers with %q instead of a list", found.Kind)
	}
	return found, nil
}

// Identity names a cluster by the uid of its namespace kube-system, as a value of a label.
func (c *Cluster) Identity(ctx context.Context) (string, error) {
	ctx, cancel := c.Call(ctx)
	defer cancel()
	namespace, err := c.Typed.CoreV1().Namespaces().Get(ctx, "kube-system", metav1.GetOptions{})
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return "", err
	}
	if err != nil {
		return "", &kube.UnreachableError{Host: c.Config.Host, Err: err}
	}
	sum := sha256.Sum256([]byte(namespace.UID))
	return hex.EncodeToString(sum[:8]), nil
}
