package journal

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/run/engine"
	"github.com/theseus-cni/theseus/internal/run/kstatus"
)

const (
	fieldManager   = "theseus"
	labelMigration = manifest.LabelMigration
	// maxPlan bounds the size of an unpacked plan, in bytes.
	maxPlan = 512 << 20
)

var (
	migrationResource = schema.GroupVersionResource{Group: v1alpha1.Group,
		Version: v1alpha1.Version, Resource: "migrations"}
	planPageResource = schema.GroupVersionResource{Group: v1alpha1.Group,
		Version: v1alpha1.Version, Resource: "planpages"}
	pageResource = schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version,
		Resource: "journalpages"}
)

// Create writes a plan to the cluster as a Migration with the plan's name. The pages are written first, so a Migration
// that exists is complete. An existing Migration with the same plan is left as it is. The caller holds the Lease.
func Create(ctx context.Context, client dynamic.Interface, p *plan.Plan) error {
	return put(ctx, client, p, planPageBytes, entry{})
}

// ErrOldCRDs says that the API server dropped fields of what this version wrote.
var ErrOldCRDs = errors.New("the API server dropped fields: the CRD in the cluster is of an older version")

// entry is how a plan is written to the cluster.
type entry struct {
	inCluster   bool // the controller runs it
	windows     []v1alpha1.Window
	annotations map[string]string
}

// put is Create, CreateInCluster or CreateForChange, with a given number of bytes per page.
func put(ctx context.Context, client dynamic.Interface, p *plan.Plan, perPage int, as entry) error {
	if err := plan.Sound(p); err != nil {
		return err
	}
	_, err := get(ctx, client, p.Name)
	if apierrors.IsNotFound(err) {
		err = create(ctx, client, p, perPage, as)
	}
	if err != nil {
		return err
	}
	if err := Settle(ctx, client); err != nil {
		return err
	}
	there, _, err := Load(ctx, client, p.Name)
	if err != nil {
		return err
	}
	if there.Hash != p.Hash {
		return engine.WithHint(fmt.Errorf("migration %s is in the cluster with another plan (%s, not %s)",
			p.Name, there.Hash, p.Hash),
			"`theseus status` shows it; `theseus resume` continues with the cluster's plan")
	}
	return nil
}

func create(ctx context.Context, client dynamic.Interface, p *plan.Plan, perPage int, as entry) error {
	packed, err := pack(p)
	if err != nil {
		return err
	}
	pages, err := writePages(ctx, client, p.Name, packed, perPage)
	if err != nil {
		return err
	}
	var status v1alpha1.MigrationStatus
	if as.inCluster { // until the controller writes its conditions, or there is none
		status.Conditions = kstatus.Initial(metav1.Now())
	}
	object, err := toUnstructured(&v1alpha1.Migration{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "Migration"},
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: v1alpha1.Namespace,
			Labels: map[string]string{v1alpha1.LabelManaged: "true"}, Annotations: as.annotations},
		Spec: v1alpha1.MigrationSpec{PlanPages: pages, PlanDigest: digest(packed), PlanHash: p.Hash,
			InCluster: as.inCluster, Windows: as.windows},
		Status: status,
	})
	if err != nil {
		return fmt.Errorf("migration %s: %w", p.Name, err)
	}
	stored, err := call(ctx, "creating migration "+p.Name,
		func(ctx context.Context) (*unstructured.Unstructured, error) {
			return client.Resource(migrationResource).Namespace(v1alpha1.Namespace).Create(ctx, object,
				metav1.CreateOptions{FieldManager: fieldManager})
		})
	if apierrors.IsAlreadyExists(err) {
		return nil // another process was faster, and Create checks its plan
	}
	if err != nil {
		return err
	}
	kept, _, _ := unstructured.NestedString(stored.Object, "spec", "planDigest")
	windows, _, _ := unstructured.NestedSlice(stored.Object, "spec", "windows")
	if kept == "" || len(windows) < len(as.windows) {
		uid := stored.GetUID()
		_, err := call(ctx, "deleting migration "+p.Name, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, client.Resource(migrationResource).Namespace(v1alpha1.Namespace).Delete(ctx, p.Name,
				metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		})
		return errors.Join(engine.WithHint(fmt.Errorf("migration %s: %w", p.Name, ErrOldCRDs),
			"nothing was changed: upgrade the chart of Theseus, which has the CRDs of its release; at a command "+
				"line, apply the plan again"), err)
	}
	return nil
}

// Load reads a Migration and its plan from the cluster. It proves that the plan is sound and is the Migration's own,
// not that it was approved: a caller that acts on it compares its hash with one from elsewhere.
func Load(ctx context.Context, client dynamic.Interface, name string) (*plan.Plan, *v1alpha1.Migration, error) {
	return LoadWithin(ctx, client, name, maxPlan)
}

// LoadWithin is Load for a plan of at most so many bytes, unpacked and with its steps written out. For a larger one,
// the error is a *plan.TooLarge.
func LoadWithin(ctx context.Context, client dynamic.Interface, name string, most int) (*plan.Plan,
	*v1alpha1.Migration, error) {
	migration, packed, err := read(ctx, client, name)
	if err != nil {
		return nil, nil, err
	}
	p, err := prove(packed, most, migration)
	return p, migration, err
}

// Head is what a plan says of itself at its beginning. It is not proven.
type Head struct {
	Theseus string `json:"theseus"` // the version that made it
	Cluster struct {
		UID string `json:"uid"`
	} `json:"cluster"`
}

// LoadIf is Load for a caller that needs the plan only if its head is right. It does not prove the plan of which wanted
// returns an error, and returns that. A plan in YAML, of an early version, has an empty head.
func LoadIf(ctx context.Context, client dynamic.Interface, name string, wanted func(Head) error) (*plan.Plan, error) {
	migration, packed, err := read(ctx, client, name)
	if err != nil {
		return nil, err
	}
	text, err := unzip(packed, maxPlan)
	if err != nil {
		return nil, unreadable(name, err)
	}
	var head Head
	_ = json.Unmarshal(text, &head) // what is damaged is found below
	if err := wanted(head); err != nil {
		return nil, err
	}
	return prove(packed, maxPlan, migration)
}

// LoadOutline reads a Migration and the outline of its plan, for display. proven is the digest of a packed plan that
// Load or LoadOutline of this version has proven on this machine; "" if there is none. Only if the cluster's packed
// plan has another digest, it is proven as by Load. LoadOutline returns its digest.
func LoadOutline(ctx context.Context, client dynamic.Interface, name, proven string) (*plan.Outline,
	*v1alpha1.Migration, string, error) {
	migration, packed, err := read(ctx, client, name)
	if err != nil {
		return nil, nil, "", err
	}
	sum := digest(packed)
	if sum != proven {
		p, err := prove(packed, maxPlan, migration)
		if err != nil {
			return nil, nil, "", err
		}
		return plan.OutlineOf(p), migration, sum, nil
	}
	var o *plan.Outline
	text, err := unzip(packed, maxPlan)
	if err == nil {
		o, err = plan.DecodeOutline(text)
	}
	if err != nil {
		return nil, nil, "", unreadable(name, err)
	}
	if err := named(o.Name, o.Hash, migration); err != nil {
		return nil, nil, "", err
	}
	return o, migration, sum, nil
}

// read reads a Migration, and its plan as it is packed.
func read(ctx context.Context, client dynamic.Interface, name string) (*v1alpha1.Migration, []byte, error) {
	migration, err := get(ctx, client, name)
	if err != nil {
		return nil, nil, err
	}
	packed := migration.Spec.PlanGzip
	if len(packed) == 0 {
		packed, err = readPages(ctx, client, migration)
	}
	if err != nil {
		return nil, nil, unreadable(name, err)
	}
	return migration, packed, nil
}

// prove unpacks a plan, and proves that it is sound and that of its Migration.
func prove(packed []byte, most int, migration *v1alpha1.Migration) (*plan.Plan, error) {
	p, err := unpack(packed, most)
	if err != nil {
		return nil, unreadable(migration.Name, err)
	}
	if err := belongs(p, migration); err != nil {
		return nil, err
	}
	return p, nil
}

func unreadable(name string, err error) error {
	return fmt.Errorf("the plan of migration %s: %w", name, err)
}

const editedHint = "do not continue with it: restore the Migration and its PlanPages from a backup, " +
	"and find out who wrote to them"

// belongs demands that a plan is the one that its Migration was made for. Its hash is computed: the cluster's text may
// have been edited together with the plan.
func belongs(p *plan.Plan, migration *v1alpha1.Migration) error {
	if err := plan.Sound(p); err != nil {
		return engine.NeedsPerson(editedHint, "the plan of migration %s is not what was applied: %w",
			migration.Name, err)
	}
	return named(p.Name, p.Hash, migration)
}

// named demands that the name and the hash of a plan are those that its Migration records.
func named(name, hash string, migration *v1alpha1.Migration) error {
	if hash != migration.Spec.PlanHash {
		return engine.NeedsPerson(editedHint, "migration %s: its plan has the hash %s, but %s was recorded",
			migration.Name, hash, migration.Spec.PlanHash)
	}
	if name != migration.Name {
		return engine.NeedsPerson(editedHint, "migration %s: its plan belongs to %s", migration.Name, name)
	}
	return nil
}

// WrittenBy returns the version of Theseus that began a migration, or else the one that made its plan. It reads neither
// the plan nor the journal completely, so it also answers if this version cannot read them; "" if it finds no version.
func WrittenBy(ctx context.Context, client dynamic.Interface, name string) (string, error) {
	var head struct {
		Theseus string `json:"theseus"`
	}
	first := struct {
		Data any `json:"data"`
	}{&head}
	pages, err := NewCluster(client, name).list(ctx)
	if err != nil {
		return "", err
	}
	if len(pages) > 0 && len(pages[0].records) > 0 {
		text, _ := raw(pages[0].records[0])
		_ = json.Unmarshal(text, &first) // an unknown form has no version
	}
	if head.Theseus != "" {
		return head.Theseus, nil
	}
	migration, err := get(ctx, client, name)
	if err != nil {
		return "", err
	}
	packed := migration.Spec.PlanGzip
	if len(packed) == 0 {
		if packed, err = readPages(ctx, client, migration); err != nil {
			return "", err
		}
	}
	if text, err := unzip(packed, maxPlan); err == nil {
		_ = json.Unmarshal(text, &head) // the same; plans in YAML are older than the controller
	}
	return head.Theseus, nil
}

// List reads all Migrations, the newest first. A cluster without Theseus' CRDs has none.
func List(ctx context.Context, client dynamic.Interface) ([]v1alpha1.Migration, error) {
	list, err := call(ctx, "listing migrations", func(ctx context.Context) (*unstructured.UnstructuredList, error) {
		return client.Resource(migrationResource).Namespace(v1alpha1.Namespace).List(ctx, metav1.ListOptions{})
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []v1alpha1.Migration
	for _, item := range list.Items {
		var one v1alpha1.Migration
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &one); err != nil {
			return nil, fmt.Errorf("migration %s: %w", item.GetName(), err)
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b v1alpha1.Migration) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

// SetDesire sets the desired state of a migration, with the user who asks for it.
func SetDesire(ctx context.Context, client dynamic.Interface, name string, desire v1alpha1.Desire) error {
	return request(ctx, client, name, desire, false)
}

// desireAge is how long an answer of a Control is used: the engine asks between all actions.
const desireAge = 2 * time.Second

// Control reads what operators ask of a migration.
type Control struct {
	client dynamic.Interface
	name   string
	age    time.Duration // how long an answer is used
	asked  atomic.Value  // string

	lock   sync.Mutex
	desire v1alpha1.Desire
	until  time.Time // desire is used until then
}

// NewControl returns the control of the Migration with this name.
func NewControl(client dynamic.Interface, name string) *Control {
	return &Control{client: client, name: name, age: desireAge}
}

// Desire implements engine.Control. The answer is at most desireAge old.
func (c *Control) Desire(ctx context.Context) (v1alpha1.Desire, error) {
	c.lock.Lock()
	defer c.lock.Unlock()
	begun := time.Now()
	if begun.Before(c.until) {
		return c.desire, nil
	}
	migration, err := get(ctx, c.client, c.name)
	if err != nil {
		return "", err
	}
	c.asked.Store(AskedBy(migration))
	c.desire, c.until = migration.Spec.Desire, begun.Add(c.age)
	return c.desire, nil
}

// Fresh implements engine.Fresher.
func (c *Control) Fresh() {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.until = time.Time{}
}

// AskedBy implements engine.Asker.
func (c *Control) AskedBy() string {
	user, _ := c.asked.Load().(string)
	return user
}

func get(ctx context.Context, client dynamic.Interface, name string) (*v1alpha1.Migration, error) {
	object, err := call(ctx, "reading migration "+name, func(ctx context.Context) (*unstructured.Unstructured, error) {
		return client.Resource(migrationResource).Namespace(v1alpha1.Namespace).Get(ctx, name, metav1.GetOptions{})
	})
	if apierrors.IsNotFound(err) {
		return nil, engine.WithHint(fmt.Errorf("there is no migration %s in this cluster: %w", name, err),
			"`theseus status` shows the latest one; check the kubeconfig's context")
	}
	if err != nil {
		return nil, err
	}
	var migration v1alpha1.Migration
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &migration); err != nil {
		return nil, fmt.Errorf("migration %s: %w", name, err)
	}
	return &migration, nil
}

func patch(ctx context.Context, client dynamic.Interface, kind schema.GroupVersionResource, name string,
	change map[string]any) error {
	data, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = call(ctx, "updating "+strings.TrimSuffix(kind.Resource, "s")+" "+name,
		func(ctx context.Context) (*unstructured.Unstructured, error) {
			return client.Resource(kind).Namespace(v1alpha1.Namespace).Patch(ctx, name, types.MergePatchType,
				data, metav1.PatchOptions{FieldManager: fieldManager})
		})
	return err
}

// Fits returns the size of a plan, unpacked, in bytes; or an error if it is too large for Create.
func Fits(p *plan.Plan) (int, error) {
	_, size, err := packed(p)
	return size, err
}

func pack(p *plan.Plan) ([]byte, error) {
	bytes, _, err := packed(p)
	return bytes, err
}

// packed returns a plan's packed text, and the size of the text.
func packed(p *plan.Plan) ([]byte, int, error) {
	text, err := plan.WriteJSON(p)
	if err != nil {
		return nil, 0, fmt.Errorf("plan %s: %w", p.Name, err)
	}
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if _, err := zip.Write(text); err != nil {
		return nil, 0, err
	}
	if err := zip.Close(); err != nil {
		return nil, 0, err
	}
	if packed.Len() > maxPlanPages*planPageBytes || len(text) > maxPlan {
		return nil, 0, engine.WithHint(
			fmt.Errorf("plan %s: it has %d bytes, %d packed, but at most %d and %d fit into the cluster",
				p.Name, len(text), packed.Len(), maxPlan, maxPlanPages*planPageBytes),
			"nothing was changed; this version cannot change a cluster with so many nodes (docs/known-issues.md)")
	}
	return packed.Bytes(), len(text), nil
}

func unpack(packed []byte, most int) (*plan.Plan, error) {
	text, err := unzip(packed, most)
	if err != nil {
		return nil, err
	}
	return plan.DecodeWithin(text, most)
}

func unzip(packed []byte, most int) ([]byte, error) {
	zip, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(zip, int64(most)+1))
	if err != nil {
		return nil, err
	}
	if len(text) > most {
		return nil, &plan.TooLarge{Limit: most}
	}
	return text, nil
}
