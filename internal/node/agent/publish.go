package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/proof/loss"
)

// publisher writes the node's report.
type publisher struct {
	agent   *Agent
	seq     int64
	known   bool // whether seq follows the report that is in the cluster
	last    v1alpha1.ProbeReportStatus
	parts   []v1alpha1.Part // the latest of each prober that a report in the cluster had
	inFull  bool            // whether results are not packed
	trouble trouble
}

// publish writes a status when it is new. A failure is logged once and otherwise forgotten: results
// accumulate where they are measured, so the next publication holds everything that this one would have.
func (p *publisher) publish(ctx context.Context, status v1alpha1.ProbeReportStatus) {
	if p.known && reflect.DeepEqual(p.last, status) || !p.known && status.Generation == 0 && len(status.Paths) == 0 {
		return
	}
	err := p.try(ctx, status)
	if err == nil {
		p.last = status
	}
	p.trouble.note(ctx, err)
}

func (p *publisher) try(ctx context.Context, status v1alpha1.ProbeReportStatus) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := p.findSeq(ctx); err != nil {
		return err
	}
	status.Seq, status.At = p.seq+1, time.Now()
	status.Parts = goneSince(p.parts, status.Parts)
	packed := status
	if !p.inFull {
		loss.Pack(&packed)
	}
	patch, err := json.Marshal(map[string]any{"status": packed})
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	reports := p.agent.resource("ProbeReport")
	kept, err := reports.Patch(ctx, p.agent.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: manifest.AgentName})
	if apierrors.IsNotFound(err) {
		kept, err = p.create(ctx, patch)
	}
	if err != nil {
		return err
	}
	p.seq, p.parts = status.Seq, withFormer(status.Parts, p.parts)
	if text, _, _ := unstructured.NestedString(kept.Object, "status", "packed"); packed.Packed != text {
		p.inFull = true // the CRD is of an earlier release, and does not have the field
		return p.try(ctx, status)
	}
	return nil
}

// findSeq reads where a former agent of this node has left off.
func (p *publisher) findSeq(ctx context.Context) error {
	if p.known {
		return nil
	}
	object, err := p.agent.resource("ProbeReport").Get(ctx, p.agent.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		p.known = true
		return nil
	}
	if err != nil {
		return err
	}
	var report v1alpha1.ProbeReport
	if err := decode(object, &report); err != nil {
		return err
	}
	p.seq, p.parts, p.known = report.Status.Seq, report.Status.Parts, true
	return nil
}

// create makes the report with the content of a patch of its status.
func (p *publisher) create(ctx context.Context, patch []byte) (*unstructured.Unstructured, error) {
	content := map[string]any{}
	if err := json.Unmarshal(patch, &content); err != nil {
		return nil, fmt.Errorf("write the report: %w", err)
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetAPIVersion(v1alpha1.APIVersion)
	object.SetKind("ProbeReport")
	object.SetName(p.agent.Name)
	object.SetNamespace(v1alpha1.Namespace)
	object.SetLabels(map[string]string{v1alpha1.LabelManaged: "true"})
	return p.agent.resource("ProbeReport").Create(ctx, object, metav1.CreateOptions{FieldManager: manifest.AgentName})
}
