package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"reflect"
	"slices"
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

	// fullEvery is the longest time between two reports in full; 0 if all are. full is the last one, which is in the
	// cluster, and fullAt when it was written.
	fullEvery time.Duration
	full      v1alpha1.ProbeReportStatus
	fullAt    time.Time
	version   string        // of the report as this agent last wrote it
	answers   []loss.Answer // of the next report
}

// publish writes a status when it is new, and says whether it has. A failure is logged once and otherwise forgotten:
// results accumulate where they are measured, so the next publication holds everything that this one would have.
func (p *publisher) publish(ctx context.Context, status v1alpha1.ProbeReportStatus) (written bool) {
	if p.known && reflect.DeepEqual(p.last, status) || !p.known && status.Generation == 0 && len(status.Paths) == 0 {
		return false
	}
	err := p.try(ctx, status)
	if err == nil {
		p.last = status
	}
	p.trouble.note(ctx, err)
	return err == nil
}

func (p *publisher) try(ctx context.Context, status v1alpha1.ProbeReportStatus) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := p.findSeq(ctx); err != nil {
		return err
	}
	status.At = time.Now().Round(0) // as readers get it: of a clock that may be set
	status.Parts = goneSince(p.parts, status.Parts)
	if short, ok := p.short(status); ok {
		if written, err := p.writeShort(ctx, status.Parts, short); written || err != nil {
			return err
		}
	}
	whole, err := p.write(ctx, status)
	if err == nil && !whole {
		p.inFull = true // the CRD is of an earlier release, and does not have the field for packed results
		_, err = p.write(ctx, status)
	}
	return err
}

// write writes a report once, with the next number. It is not whole if the API server has dropped its packed results.
func (p *publisher) write(ctx context.Context, status v1alpha1.ProbeReportStatus) (whole bool, err error) {
	status.Seq = p.seq + 1
	packed := status
	if !p.inFull {
		loss.Pack(&packed)
	}
	var content struct {
		Metadata metadata `json:"metadata"`
		Status   struct {
			v1alpha1.ProbeReportStatus
			// Packed is null where nothing is packed: a merge would keep that of the report before.
			Packed *string `json:"packed"`
		} `json:"status"`
	}
	content.Metadata = p.metadata(nil, "")
	content.Status.ProbeReportStatus = packed
	if packed.Packed != "" {
		content.Status.Packed = &packed.Packed
	}
	patch, err := json.Marshal(content)
	if err != nil {
		return false, fmt.Errorf("write the report: %w", err)
	}
	reports := p.agent.resource("ProbeReport")
	kept, err := reports.Patch(ctx, p.agent.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: manifest.AgentName})
	if apierrors.IsNotFound(err) {
		kept, err = p.create(ctx, patch)
	}
	if err != nil {
		return false, err
	}
	p.seq, p.parts = status.Seq, withFormer(status.Parts, p.parts)
	p.full, p.fullAt, p.version = status, time.Now(), kept.GetResourceVersion()
	text, _, _ := unstructured.NestedString(kept.Object, "status", "packed")
	return packed.Packed == text, nil
}

// metadata is what the agent writes to the metadata of its report.
type metadata struct {
	Annotations map[string]*string `json:"annotations"`
	// ManagedFields with one empty entry tell the API server to keep none: they are read with every report.
	ManagedFields []struct{} `json:"managedFields"`
	// ResourceVersion makes the API server refuse the patch of another version.
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// metadata has the answers of the next report, and a short report for a version of the report; or none: nil removes
// that of the report in full before.
func (p *publisher) metadata(short *string, version string) metadata {
	annotations := map[string]*string{v1alpha1.AnnotationShort: short}
	if text := loss.AnswersText(p.seq+1, p.answers); text != "" {
		annotations[v1alpha1.AnnotationAnswer] = &text
	}
	return metadata{annotations, make([]struct{}, 1), version}
}

// short is a status as a short report, if it can be one and no report in full is due.
func (p *publisher) short(status v1alpha1.ProbeReportStatus) (text string, ok bool) {
	if p.full.Seq == 0 || p.fullDue(time.Now()) {
		return "", false
	}
	status.Seq = p.seq + 1
	return loss.Shorten(&p.full, &status)
}

// fullDue reports whether a report in full is due. The times are multiples of fullEvery, and another part of it for
// each node: all agents begin at the same moment, and must not write in full at the same moment ever after.
func (p *publisher) fullDue(now time.Time) bool {
	if p.fullEvery <= 0 {
		return true
	}
	sum := fnv.New64a()
	sum.Write([]byte(p.agent.Name)) // never fails
	part := time.Duration(sum.Sum64() % uint64(p.fullEvery))
	slot := func(at time.Time) time.Time { return at.Add(part).Truncate(p.fullEvery) }
	return slot(now).After(slot(p.fullAt)) || now.Sub(p.fullAt) >= p.fullEvery
}

// news reports whether a status has what should not wait for the next regular report: more than a short report can say,
// or the first results of a path, for which a run waits.
func (p *publisher) news(status v1alpha1.ProbeReportStatus) bool {
	if p.full.Seq == 0 {
		return false
	}
	if begun(p.last.Paths, status.Paths) {
		return true
	}
	status.At, status.Parts = time.Now().Round(0), goneSince(p.parts, slices.Clone(status.Parts))
	status.Seq = p.seq + 1
	_, ok := loss.Shorten(&p.full, &status)
	return !ok
}

// begun reports whether a path was measured, or answered, for the first time. Both are sorted by the paths' IDs.
func begun(before, now []v1alpha1.PathResult) bool {
	for _, one := range now {
		for len(before) > 0 && before[0].ID < one.ID {
			before = before[1:]
		}
		var last v1alpha1.PathResult
		if len(before) > 0 && before[0].ID == one.ID {
			last = before[0]
		}
		if last.Sent == 0 && one.Sent > 0 || last.Answered == 0 && one.Answered > 0 {
			return true
		}
	}
	return false
}

// writeShort writes a short report. It is not written if the report in full is no longer the one to which it belongs:
// nobody may have written to the report since this agent did. After a failure, the next report is in full.
func (p *publisher) writeShort(ctx context.Context, parts []v1alpha1.Part, text string) (written bool, err error) {
	patch, err := json.Marshal(map[string]metadata{"metadata": p.metadata(&text, p.version)})
	if err != nil {
		return false, fmt.Errorf("write the short report: %w", err)
	}
	kept, err := p.agent.resource("ProbeReport").Patch(ctx, p.agent.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: manifest.AgentName})
	if err != nil {
		p.full = v1alpha1.ProbeReportStatus{}
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			err = nil
		}
		return false, err
	}
	p.seq, p.parts, p.version = p.seq+1, withFormer(parts, p.parts), kept.GetResourceVersion()
	return true, nil
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
	if short := report.Annotations[v1alpha1.AnnotationShort]; short != "" {
		err := loss.Unpack(&report.Status)
		if err := cmp.Or(err, loss.Restore(&report.Status, short)); err != nil {
			p.agent.Log.Error("the report of the agent before cannot be read", "error", err)
			report.Status.Parts = nil // it is not known how long probers were gone
		}
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
	var head struct{ Metadata metadata }
	if err := json.Unmarshal(patch, &head); err != nil {
		return nil, fmt.Errorf("write the report: %w", err)
	}
	delete(content, "metadata") // what else it has is for merges
	if status, is := content["status"].(map[string]any); is && status["packed"] == nil {
		delete(status, "packed") // null is for merges
	}
	object := &unstructured.Unstructured{Object: content}
	object.SetAPIVersion(v1alpha1.APIVersion)
	object.SetKind("ProbeReport")
	object.SetName(p.agent.Name)
	object.SetNamespace(v1alpha1.Namespace)
	object.SetLabels(map[string]string{v1alpha1.LabelManaged: "true"})
	if answer := head.Metadata.Annotations[v1alpha1.AnnotationAnswer]; answer != nil {
		object.SetAnnotations(map[string]string{v1alpha1.AnnotationAnswer: *answer})
	}
	return p.agent.resource("ProbeReport").Create(ctx, object, metav1.CreateOptions{FieldManager: manifest.AgentName})
}
