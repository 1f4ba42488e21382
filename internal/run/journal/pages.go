package journal

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/change/plan"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

const (
	// labelLoose marks a page without an owner yet.
	labelLoose = "theseus.dev/loose"
	// planPageBytes is how much of a packed plan is on a page; base64 adds a third, and the API server takes 1.5 MiB.
	// maxPlanPages bounds a plan's share of etcd, whose own limit is 2 GiB by default.
	planPageBytes = 256 << 10
	maxPlanPages  = 128
)

// writePages writes a packed plan into pages with new names, and returns these. The pages are loose: nothing
// refers to them until a Migration names them.
func writePages(ctx context.Context, client dynamic.Interface, migration string, packed []byte,
	perPage int) ([]string, error) {
	var names []string
	unique := strings.ToLower(rand.Text()[:8])
	for data := range slices.Chunk(packed, perPage) {
		number := len(names) + 1
		page := &v1alpha1.PlanPage{
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: "PlanPage"},
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("%s-%s-%04d", migration, unique, number), Namespace: v1alpha1.Namespace,
				Labels: map[string]string{v1alpha1.LabelManaged: "true", labelMigration: migration, labelLoose: "true"},
			},
			Migration: migration, Page: number, Data: data,
		}
		object, err := toUnstructured(page)
		if err != nil {
			return nil, fmt.Errorf("plan page %s: %w", page.Name, err)
		}
		if _, err := call(ctx, "writing the plan of "+migration,
			func(ctx context.Context) (*unstructured.Unstructured, error) {
				return planPages(client).Create(ctx, object, metav1.CreateOptions{FieldManager: fieldManager})
			}); err != nil {
			return nil, err
		}
		names = append(names, page.Name)
	}
	return names, nil
}

// readPages joins the pages that a Migration names. A missing or edited page is an error, never a shorter plan.
func readPages(ctx context.Context, client dynamic.Interface, migration *v1alpha1.Migration) ([]byte, error) {
	const hint = "restore the page from a backup of the cluster; without it, you have to finish or undo the " +
		"migration yourself, with the runbook"
	var packed bytes.Buffer
	for i, name := range migration.Spec.PlanPages {
		if packed.Len() > maxPlanPages*planPageBytes {
			return nil, &plan.TooLarge{Limit: maxPlan}
		}
		object, err := call(ctx, "reading the plan of "+migration.Name,
			func(ctx context.Context) (*unstructured.Unstructured, error) {
				return planPages(client).Get(ctx, name, metav1.GetOptions{})
			})
		if apierrors.IsNotFound(err) {
			return nil, engine.WithHint(fmt.Errorf("page %d of %d is missing: PlanPage %s",
				i+1, len(migration.Spec.PlanPages), name), hint)
		}
		if err != nil {
			return nil, err
		}
		var page v1alpha1.PlanPage
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &page); err != nil {
			return nil, fmt.Errorf("page %s: %w", name, err)
		}
		packed.Write(page.Data)
	}
	if got := digest(packed.Bytes()); got != migration.Spec.PlanDigest {
		return nil, engine.WithHint(
			fmt.Errorf("its %d pages have the digest %s, but %s was recorded: a page was edited",
				len(migration.Spec.PlanPages), got, migration.Spec.PlanDigest), hint)
	}
	return packed.Bytes(), nil
}

// Settle makes Migrations the owners of pages that were written before them, so that they are deleted together, and
// deletes pages that no Migration names: their writer was killed, or failed, before it created the Migration. The
// caller holds the Lease; otherwise Settle would delete pages that another process is writing.
func Settle(ctx context.Context, client dynamic.Interface) error {
	loose, err := listAll[v1alpha1.PlanPage](ctx, client, planPageResource, labelLoose+"=true",
		"reading the pages of plans")
	if apierrors.IsNotFound(err) {
		return nil // the CRDs are of an older version, which made no pages
	}
	if err != nil {
		return err
	}
	owners := map[string]*v1alpha1.Migration{}
	for _, page := range loose {
		owner, asked := owners[page.Migration]
		if !asked {
			if owner, err = get(ctx, client, page.Migration); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			owners[page.Migration] = owner
		}
		if err := settle(ctx, client, page.Name, owner); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func settle(ctx context.Context, client dynamic.Interface, page string, owner *v1alpha1.Migration) error {
	if owner == nil || !slices.Contains(owner.Spec.PlanPages, page) {
		_, err := call(ctx, "removing page "+page, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, planPages(client).Delete(ctx, page, metav1.DeleteOptions{})
		})
		return err
	}
	return patch(ctx, client, planPageResource, page, map[string]any{"metadata": map[string]any{
		"labels":          map[string]any{labelLoose: nil},
		"ownerReferences": []metav1.OwnerReference{ownedBy(owner.Name, owner.UID)},
	}})
}

func planPages(client dynamic.Interface) dynamic.ResourceInterface {
	return client.Resource(planPageResource).Namespace(v1alpha1.Namespace)
}

// ownedBy makes the garbage collector remove an object when its Migration is removed.
func ownedBy(name string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: v1alpha1.APIVersion, Kind: "Migration", Name: name, UID: uid}
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
