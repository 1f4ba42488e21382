package run

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/document"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/run/engine"
)

const (
	// archiveEvery is how often a run writes its evidence to the cluster, and archiveCall bounds one call.
	archiveEvery = time.Minute
	archiveCall  = 10 * time.Second
	// archiveEnd bounds the last write of a run.
	archiveEnd = 20 * time.Second
	// partBytes is how much one ConfigMap holds; the API server accepts 1 MiB. maxParts bounds the share of etcd.
	partBytes = 900_000
	maxParts  = 32

	annotationDigest = "theseus.dev/evidence-digest" // SHA-256 of the whole packed evidence
	annotationParts  = "theseus.dev/evidence-parts"  // how many ConfigMaps hold it
	annotationWrite  = "theseus.dev/evidence-write"  // number of the write, from 1
	evidenceKey      = "evidence.json.gz"
)

var (
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
	migrations = schema.GroupVersionResource{Group: v1alpha1.Group, Version: v1alpha1.Version, Resource: "migrations"}
)

// archive keeps the evidence of a migration in the cluster, so that it outlives the process and the machine of a run.
// It consists of ConfigMaps, and of two sets of them: each write replaces the older set, so a write that is interrupted
// leaves the other set complete. The ConfigMaps are deleted with the Migration.
type archive struct {
	client    dynamic.Interface
	migration string
	perPart   int

	uid    types.UID // of the Migration
	read   bool
	write  int64  // number of the last complete write, 0 if there is none
	digest string // of that write
}

func newArchive(client dynamic.Interface, migration string) *archive {
	return &archive{client: client, migration: migration, perPart: partBytes}
}

// damagedError says that a write is incomplete, or was edited.
type damagedError struct{ cause, rest string }

func (e *damagedError) Error() string {
	return "the evidence in the cluster is damaged: " + e.cause + "; " + e.rest
}

// load returns the evidence of the last complete write; it is empty if there is none. With a *damagedError, the
// evidence is of the write before.
func (a *archive) load(ctx context.Context) (kube.Collected, error) {
	var found kube.Collected
	var damaged *damagedError
	var newest int64 // of the damaged writes
	a.write, a.digest = 0, ""
	for set := range int64(2) {
		write, digest, packed, err := a.readSet(ctx, set)
		var collected kube.Collected
		if err == nil && write > 0 {
			collected, err = unpack(packed, document.MaxInput)
			if err != nil {
				err = &damagedError{cause: err.Error()}
			}
		}
		var torn *damagedError
		switch {
		case errors.As(err, &torn):
			damaged, newest = torn, max(newest, write)
		case err != nil:
			return kube.Collected{}, err
		case write > a.write:
			found, a.write, a.digest = collected, write, digest
		}
	}
	a.read = true
	if damaged == nil || newest > 0 && newest < a.write {
		return found, nil // an older write is of no interest
	}
	damaged.rest = "the previous version of the evidence is used"
	if a.write == 0 {
		damaged.rest = "none of it is used"
	}
	return found, damaged
}

// readSet reads one of the two sets; the number of the write is 0 if there is none, or if its first part is damaged.
func (a *archive) readSet(ctx context.Context, set int64) (write int64, digest string, packed []byte, err error) {
	parts := int64(1)
	for part := int64(0); part < parts; part++ {
		one, err := a.get(ctx, a.name(part, set))
		if apierrors.IsNotFound(err) && part == 0 {
			return 0, "", nil, nil
		}
		if apierrors.IsNotFound(err) {
			return write, "", nil, &damagedError{cause: fmt.Sprintf("ConfigMap %s is missing", a.name(part, set))}
		}
		if err != nil {
			return 0, "", nil, err
		}
		of, _ := strconv.ParseInt(one.Annotations[annotationParts], 10, 64)
		number, _ := strconv.ParseInt(one.Annotations[annotationWrite], 10, 64)
		if part == 0 {
			if of < 1 || of > maxParts || number < 1 {
				return 0, "", nil, &damagedError{cause: fmt.Sprintf("ConfigMap %s has the annotations %v",
					one.Name, one.Annotations)}
			}
			write, parts, digest = number, of, one.Annotations[annotationDigest]
		}
		if number != write || of != parts || one.Annotations[annotationDigest] != digest {
			return write, "", nil, &damagedError{cause: fmt.Sprintf("ConfigMap %s and the first one are from "+
				"different writes",
				one.Name)}
		}
		packed = append(packed, one.BinaryData[evidenceKey]...)
	}
	if sum := digestOf(packed); sum != digest {
		return write, "", nil, &damagedError{cause: fmt.Sprintf("it has the digest %s, but %s was recorded",
			sum, digest)}
	}
	return write, digest, packed, nil
}

// addTo adds what is there to evidence, once: it does nothing after a load. With a *damagedError, it has added the
// write before.
func (a *archive) addTo(ctx context.Context, evidence *kube.Evidence) error {
	if a.read {
		return nil
	}
	before, err := a.load(ctx)
	evidence.Merge(before) // empty if it cannot be read
	return err
}

// save writes evidence, unless the last complete write has the same. Before its first write it adds what is there to
// the evidence. A *damagedError is about that; the evidence is written all the same.
func (a *archive) save(ctx context.Context, evidence *kube.Evidence) error {
	added := a.addTo(ctx, evidence)
	var damaged *damagedError
	if added != nil && !errors.As(added, &damaged) {
		return added
	}
	if err := a.put(ctx, evidence.Document()); err != nil {
		return err
	}
	return added
}

func (a *archive) put(ctx context.Context, collected kube.Collected) error {
	if len(collected.Paths)+len(collected.Results)+len(collected.Parts)+len(collected.Foreign) == 0 {
		return nil
	}
	packed, err := pack(collected)
	if err != nil {
		return err
	}
	sum := digestOf(packed)
	if sum == a.digest {
		return nil
	}
	if len(packed) > maxParts*a.perPart {
		return fmt.Errorf("it has %d bytes packed, but at most %d fit into the cluster",
			len(packed), maxParts*a.perPart)
	}
	if err := a.own(ctx); err != nil {
		return err
	}
	write := a.write + 1
	parts := slices.Collect(slices.Chunk(packed, a.perPart))
	for part, data := range parts {
		if err := a.putPart(ctx, &corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{
				Name: a.name(int64(part), write%2), Namespace: v1alpha1.Namespace,
				Labels: map[string]string{v1alpha1.LabelManaged: "true", manifest.LabelMigration: a.migration},
				Annotations: map[string]string{annotationDigest: sum, annotationParts: strconv.Itoa(len(parts)),
					annotationWrite: strconv.FormatInt(write, 10)},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.APIVersion, Kind: "Migration",
					Name: a.migration, UID: a.uid}},
			},
			BinaryData: map[string][]byte{evidenceKey: data},
		}); err != nil {
			return err
		}
	}
	a.write, a.digest = write, sum
	return nil
}

// own finds the UID of the Migration, once.
func (a *archive) own(ctx context.Context) error {
	if a.uid != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, archiveCall)
	defer cancel()
	owner, err := a.client.Resource(migrations).Namespace(v1alpha1.Namespace).Get(ctx, a.migration, metav1.GetOptions{})
	if err != nil {
		return err
	}
	a.uid = owner.GetUID()
	return nil
}

// name is the name of one part of a set: the sets have the even and the odd numbers.
func (a *archive) name(part, set int64) string {
	return fmt.Sprintf("theseus-evidence-%s-%d", a.migration, 2*part+set)
}

func (a *archive) objects() dynamic.ResourceInterface {
	return a.client.Resource(configMaps).Namespace(v1alpha1.Namespace)
}

func (a *archive) get(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	ctx, cancel := context.WithTimeout(ctx, archiveCall)
	defer cancel()
	object, err := a.objects().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var one corev1.ConfigMap
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &one); err != nil {
		return nil, fmt.Errorf("ConfigMap %s: %w", name, err)
	}
	return &one, nil
}

// putPart replaces a ConfigMap, or creates it. Only the holder of the lock writes, so nothing is compared first.
func (a *archive) putPart(ctx context.Context, one *corev1.ConfigMap) error {
	ctx, cancel := context.WithTimeout(ctx, archiveCall)
	defer cancel()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(one)
	if err != nil {
		return err
	}
	object := &unstructured.Unstructured{Object: fields}
	_, err = a.objects().Update(ctx, object, metav1.UpdateOptions{FieldManager: "theseus"})
	if apierrors.IsNotFound(err) {
		_, err = a.objects().Create(ctx, object, metav1.CreateOptions{FieldManager: "theseus"})
	}
	return err
}

func pack(collected kube.Collected) ([]byte, error) {
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	bounded := &bounded{to: zip, left: document.MaxInput}
	if err := encode(bounded, collected); err != nil {
		return nil, err
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// bounded writes at most so many bytes.
type bounded struct {
	to   io.Writer
	left int
}

func (b *bounded) Write(data []byte) (int, error) {
	if b.left -= len(data); b.left < 0 {
		return 0, fmt.Errorf("it has more than %d MiB, which could not be read again", document.MaxInput>>20)
	}
	return b.to.Write(data)
}

// unpack reads packed evidence of at most so many bytes.
func unpack(packed []byte, most int64) (collected kube.Collected, err error) {
	zip, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return collected, err
	}
	return decode(zip, most)
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// archiver writes the evidence of a run to the cluster. A failed write is retried with the next one, and reported once.
type archiver struct {
	archive  *archive
	evidence *kube.Evidence
	say      func(string)
	told     bool
}

// archiving writes evidence to the cluster once a minute, while it changes, and when it is stopped.
func (r *Run) archiving(ctx context.Context, archive *archive, evidence *kube.Evidence) (stop func()) {
	a := &archiver{archive: archive, evidence: evidence, say: r.View.Say}
	running, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			a.keep(running, false)
			if (Clock{}).Sleep(running, archiveEvery) != nil {
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), archiveEnd)
		defer cancel()
		a.keep(last, true)
	}
}

// resume adds the evidence of earlier processes of the run, which may have been on other machines: its counts go on
// from there. If it cannot be read now, the first write adds it, and says why it could not.
func (r *Run) resume(ctx context.Context, archive *archive, evidence *kube.Evidence, past []engine.Record) {
	if len(past) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, archiveCall)
	defer cancel()
	var damaged *damagedError
	if err := archive.addTo(ctx, evidence); errors.As(err, &damaged) {
		r.View.Say("warning: " + err.Error())
	}
}

// keep writes the evidence. Only at the end of a run it is worth a word that the API server did not answer.
func (a *archiver) keep(ctx context.Context, last bool) {
	err := a.archive.save(ctx, a.evidence)
	var damaged *damagedError
	switch {
	case err == nil:
	case errors.As(err, &damaged):
		a.say("warning: " + err.Error())
	case a.told || !last && (ctx.Err() != nil || outage.Expired(err) || outage.Passes(err)):
	case apierrors.IsForbidden(err):
		a.told = true
		a.say("note: the evidence for the report is kept on this machine only: the permissions to keep it in the " +
			"cluster are missing (`theseus rights operate` prints them): " + err.Error())
	default:
		a.told = true
		a.say("warning: the evidence for the report cannot be kept in the cluster: " + err.Error())
	}
}
