// Package introduce makes the running pods of one network known to the agents of another, by objects that these read,
// for as long as there are two networks. It runs in the cluster as a process of its own (`theseus-agent introduce`), so
// that pods that start later are introduced no matter which process runs the change, and whether or not anybody does.
//
// What the objects say is the driver's to know (cni.Introducer).
package introduce

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/network/cni"
)

const (
	workers = 4
	// A pod that could not be introduced is tried again after this, at first and at most.
	firstRetry, lastRetry = 50 * time.Millisecond, 2 * time.Second
	// patience is how long a pod may wait before the writer is not ready any more.
	patience = 5 * time.Second
)

// Writer introduces pods.
type Writer struct {
	Client  dynamic.Interface
	Network cni.Introducer
	// Ranges are those of the addresses of the pods.
	Ranges []netip.Prefix
	Log    *slog.Logger
	// Ready is an address (host:port) that accepts connections from when all pods that were there at the start are
	// introduced, except while a pod waits for too long.
	Ready string

	pods, namespaces, identities, endpoints cache.SharedIndexInformer
	queue                                   workqueue.TypedRateLimitingInterface[string]

	mu    sync.Mutex
	first map[string]bool      // the pods of the start that are not yet introduced
	since map[string]time.Time // when pods were first tried that are not yet introduced
}

// Run introduces pods until the context ends.
func (w *Writer) Run(ctx context.Context) error {
	if err := w.watch(ctx); err != nil {
		return err
	}
	w.first, w.since = map[string]bool{}, map[string]time.Time{}
	for _, key := range w.pods.GetStore().ListKeys() {
		w.first[key] = true
		w.queue.Add(key)
	}
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for w.next(ctx) {
			}
		})
	}
	var err error
	ready := make(chan error, 1)
	group.Go(func() { ready <- w.serve(ctx) })
	select {
	case <-ctx.Done():
	case err = <-ready:
	}
	w.queue.ShutDown()
	group.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// watch fills the stores, and queues pods when something about them changes.
func (w *Writer) watch(ctx context.Context) error {
	w.queue = workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry))
	identities, endpoints := w.Network.Known()
	factory := dynamicinformer.NewDynamicSharedInformerFactory(w.Client, 0)
	w.pods = factory.ForResource(corev1.SchemeGroupVersion.WithResource("pods")).Informer()
	w.namespaces = factory.ForResource(corev1.SchemeGroupVersion.WithResource("namespaces")).Informer()
	w.identities, w.endpoints = factory.ForResource(identities).Informer(), factory.ForResource(endpoints).Informer()
	if err := w.pods.SetTransform(trim); err != nil {
		return err
	}
	if err := w.identities.AddIndexers(cache.Indexers{byLabels: func(object any) ([]string, error) {
		return []string{text(w.Network.Labels(object.(*unstructured.Unstructured)))}, nil
	}}); err != nil {
		return err
	}
	for _, of := range []struct {
		informer cache.SharedIndexInformer
		changed  func(object any)
	}{
		{w.pods, w.add}, {w.endpoints, w.add}, {w.namespaces, w.addNamespace},
	} {
		if _, err := of.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: of.changed, UpdateFunc: func(_, object any) { of.changed(object) },
			DeleteFunc: of.changed}); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("read %s: %w", kind.Resource, context.Cause(ctx))
		}
	}
	return nil
}

// byLabels is the index of identities by their labels.
const byLabels = "labels"

// text is a set of labels as a key.
func text(labels map[string]string) string {
	key := ""
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		key += strconv.Quote(name) + strconv.Quote(labels[name])
	}
	return key
}

// trim keeps of a pod what introducing it needs.
func trim(object any) (any, error) {
	full, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil // trimmed before, or a tombstone
	}
	var pod corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(full.Object, &pod); err != nil {
		return nil, fmt.Errorf("read pod %s/%s: %w", full.GetNamespace(), full.GetName(), err)
	}
	short := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, Labels: pod.Labels,
			ResourceVersion: pod.ResourceVersion},
		Spec:   corev1.PodSpec{ServiceAccountName: pod.Spec.ServiceAccountName, HostNetwork: pod.Spec.HostNetwork},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, PodIP: pod.Status.PodIP, HostIP: pod.Status.HostIP},
	}
	for _, container := range pod.Spec.Containers {
		if len(container.Ports) > 0 {
			short.Spec.Containers = append(short.Spec.Containers, corev1.Container{Ports: container.Ports})
		}
	}
	return short, nil
}

func (w *Writer) add(object any) {
	if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
		w.queue.Add(key)
	}
}

// addNamespace queues all pods of a namespace, whose labels may have changed.
func (w *Writer) addNamespace(object any) {
	name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return
	}
	keys, _ := w.pods.GetIndexer().IndexKeys(cache.NamespaceIndex, name)
	for _, key := range keys {
		w.queue.Add(key)
	}
}

// next introduces one pod; it is false when the queue has ended.
func (w *Writer) next(ctx context.Context) bool {
	key, ended := w.queue.Get()
	if ended {
		return false
	}
	defer w.queue.Done(key)
	call, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := w.introduce(call, key); err != nil {
		if ctx.Err() == nil && !expected(err) {
			w.Log.Warn("a pod is not introduced yet", "pod", key, "error", err)
		}
		w.failed(key)
		w.queue.AddRateLimited(key)
		return true
	}
	w.queue.Forget(key)
	w.done(key)
	return true
}

// expected are failures of a writer whose stores are a moment behind.
func expected(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// done notes that a pod is introduced, or needs no introduction.
func (w *Writer) done(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.first, key)
	delete(w.since, key)
}

func (w *Writer) failed(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.since[key]; !known {
		w.since[key] = time.Now()
	}
}

// behind reports whether pods of the start are not introduced, or a pod has waited for longer than the writer's
// patience.
func (w *Writer) behind() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.first) > 0 {
		return true
	}
	for _, since := range w.since {
		if time.Since(since) > patience {
			return true
		}
	}
	return false
}

// serve accepts connections while the writer is not behind.
func (w *Writer) serve(ctx context.Context) error {
	var listener net.Listener
	defer func() {
		if listener != nil {
			_ = listener.Close()
		}
	}()
	for {
		switch behind := w.behind(); {
		case behind && listener != nil:
			w.Log.Warn("a pod waits to be introduced")
			_ = listener.Close()
			listener = nil
		case !behind && listener == nil:
			w.Log.Info("all pods are introduced")
			var err error
			if listener, err = new(net.ListenConfig).Listen(ctx, "tcp", w.Ready); err != nil {
				return fmt.Errorf("listen for the kubelet: %w", err)
			}
			go accept(listener)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// accept ends when the listener is closed.
func accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_ = conn.Close()
	}
}

// introduce makes the endpoint of a pod what it should be. The endpoint of a pod that is gone goes at once: otherwise
// an agent may take it for that of a new pod with this name, and lose it when the former pod's garbage is collected.
func (w *Writer) introduce(ctx context.Context, key string) error {
	pod, endpoint := stored[*corev1.Pod](w.pods, key), stored[*unstructured.Unstructured](w.endpoints, key)
	switch {
	case pod == nil:
		if endpoint != nil && mine(endpoint) {
			return w.bury(ctx, endpoint)
		}
		return nil
	case !w.ours(pod):
		switch {
		case endpoint == nil || !mine(endpoint):
			return nil
		case owner(endpoint) != string(pod.UID):
			return w.yield(ctx, pod, endpoint)
		case ended(pod):
			return w.remove(ctx, endpoint) // another pod may get its address
		}
		return nil
	case endpoint != nil && owner(endpoint) != string(pod.UID):
		return w.displace(ctx, pod, endpoint)
	case endpoint != nil && !mine(endpoint):
		return nil
	}
	namespace := stored[*unstructured.Unstructured](w.namespaces, pod.Namespace)
	if namespace == nil {
		return fmt.Errorf("its namespace is not known")
	}
	labels := w.Network.Identify(pod, namespace.GetLabels())
	number, err := w.identity(ctx, labels)
	if err != nil {
		return fmt.Errorf("its identity: %w", err)
	}
	wanted := w.Network.Endpoint(pod, number, labels)
	wanted.SetLabels(map[string]string{v1alpha1.LabelManaged: "true"})
	wanted.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}})
	_, resource := w.Network.Known()
	client := w.Client.Resource(resource).Namespace(pod.Namespace)
	if endpoint == nil {
		_, err = client.Create(ctx, wanted, metav1.CreateOptions{})
		return err
	}
	if equality.Semantic.DeepEqual(endpoint.Object["status"], wanted.Object["status"]) {
		return nil
	}
	wanted.SetResourceVersion(endpoint.GetResourceVersion())
	_, err = client.Update(ctx, wanted, metav1.UpdateOptions{})
	return err
}

// ours reports whether a pod is one of those to introduce.
func (w *Writer) ours(pod *corev1.Pod) bool {
	address, err := netip.ParseAddr(pod.Status.PodIP)
	return err == nil && pod.Status.HostIP != "" && !pod.Spec.HostNetwork && !ended(pod) &&
		slices.ContainsFunc(w.Ranges, func(p netip.Prefix) bool { return p.Contains(address) })
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// mine reports whether Theseus made an endpoint, and not an agent of the network.
func mine(endpoint *unstructured.Unstructured) bool {
	return endpoint.GetLabels()[v1alpha1.LabelManaged] == "true"
}

func owner(endpoint *unstructured.Unstructured) string {
	for _, reference := range endpoint.GetOwnerReferences() {
		if reference.Kind == "Pod" {
			return string(reference.UID)
		}
	}
	return ""
}

// there asks the API server whether a pod is there, as the store of pods may be behind that of endpoints. If another
// one is, its own event comes.
func (w *Writer) there(ctx context.Context, pod *corev1.Pod) (bool, error) {
	now, err := w.Client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(pod.Namespace).Get(ctx,
		pod.Name, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	return now.GetUID() == pod.UID, nil
}

// displace removes the endpoint of a former pod with the same name.
func (w *Writer) displace(ctx context.Context, pod *corev1.Pod, endpoint *unstructured.Unstructured) error {
	if there, err := w.there(ctx, pod); err != nil || !there {
		return err
	}
	if err := w.remove(ctx, endpoint); err != nil {
		return err
	}
	return fmt.Errorf("its endpoint was of another pod with its name")
}

// bury removes the endpoint of a pod that is gone. The API server is asked, as the store of pods may be behind that of
// endpoints.
func (w *Writer) bury(ctx context.Context, endpoint *unstructured.Unstructured) error {
	_, err := w.Client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(endpoint.GetNamespace()).Get(
		ctx, endpoint.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return w.remove(ctx, endpoint)
	}
	return err // or the pod's own event comes
}

// yield gives the endpoint of a former pod to the pod with its name that is the agents' own: they have taken it over
// already, or will.
func (w *Writer) yield(ctx context.Context, pod *corev1.Pod, endpoint *unstructured.Unstructured) error {
	if pod.Status.PodIP == "" || ended(pod) {
		return nil // its address says whose it is
	}
	if there, err := w.there(ctx, pod); err != nil || !there {
		return err
	}
	given := endpoint.DeepCopy()
	given.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}})
	labels := given.GetLabels()
	delete(labels, v1alpha1.LabelManaged)
	given.SetLabels(labels)
	_, resource := w.Network.Known()
	_, err := w.Client.Resource(resource).Namespace(pod.Namespace).Update(ctx, given, metav1.UpdateOptions{})
	return err
}

func (w *Writer) remove(ctx context.Context, endpoint *unstructured.Unstructured) error {
	_, resource := w.Network.Known()
	uid, version := endpoint.GetUID(), endpoint.GetResourceVersion()
	err := w.Client.Resource(resource).Namespace(endpoint.GetNamespace()).Delete(ctx, endpoint.GetName(),
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// identity returns the number of the identity of labels, and makes one if there is none. Two writers that do not know
// of each other make the same: the number is computed from the labels, and the next is tried if it is taken.
func (w *Writer) identity(ctx context.Context, labels map[string]string) (int, error) {
	key := text(labels)
	found, err := w.identities.GetIndexer().ByIndex(byLabels, key)
	if err != nil {
		return 0, err
	}
	var numbers []int
	for _, object := range found {
		if number, err := strconv.Atoi(object.(*unstructured.Unstructured).GetName()); err == nil {
			numbers = append(numbers, number)
		}
	}
	if len(numbers) > 0 {
		return slices.Min(numbers), nil
	}
	resource, _ := w.Network.Known()
	client := w.Client.Resource(resource)
	first, last := w.Network.Numbers()
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(key))
	size := last - first + 1
	for start, i := int(hash.Sum32()%uint32(size)), 0; i < size; i++ {
		number := first + (start+i)%size
		if _, taken, _ := w.identities.GetStore().GetByKey(strconv.Itoa(number)); taken {
			continue
		}
		_, err := client.Create(ctx, w.Network.Identity(number, labels), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			other, got := client.Get(ctx, strconv.Itoa(number), metav1.GetOptions{})
			if got == nil && text(w.Network.Labels(other)) != key {
				continue
			}
			err = got
		}
		return number, err
	}
	return 0, fmt.Errorf("no number from %d to %d is free", first, last)
}

// stored is an object of a store; nil if it is not there.
func stored[T any](informer cache.SharedIndexInformer, key string) (none T) {
	object, _, _ := informer.GetStore().GetByKey(key)
	if found, ok := object.(T); ok {
		return found
	}
	return none
}
