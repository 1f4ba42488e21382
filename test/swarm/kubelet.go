package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
	"github.com/theseus-cni/theseus/internal/cluster/outage"
	"github.com/theseus-cni/theseus/internal/node/agent"
)

const kernel = "6.12.48-amd64"

// restartAfter is when a kubelet starts a container again, the first time.
const restartAfter = time.Second

// leaseTimes is for how many renewals a lease of a node lasts, as a kubelet has it.
const leaseTimes = 4

// register makes the Node of every machine, and renews its lease from then on.
func (s *swarm) register(ctx context.Context) error {
	for i := range len(s.machines) {
		m := s.machines[fmt.Sprintf("node-%d", i+1)]
		_, err := s.client.CoreV1().Nodes().Create(ctx, m.object(), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("register %s: %w", m.name, err)
		}
		go m.live(ctx)
	}
	return nil
}

func (m *machine) object() *corev1.Node {
	many := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16"),
		corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("110"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi")}
	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus,
		reason string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, Reason: reason, LastHeartbeatTime: metav1.Now(),
			LastTransitionTime: metav1.Now()}
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: m.name,
			Labels: map[string]string{corev1.LabelHostname: m.name, corev1.LabelOSStable: "linux",
				corev1.LabelArchStable: "amd64"},
			Annotations: map[string]string{"flannel.alpha.coreos.com/backend-type": "vxlan",
				"flannel.alpha.coreos.com/kube-subnet-manager": "true", "flannel.alpha.coreos.com/public-ip": m.address,
				"flannel.alpha.coreos.com/backend-data": `{"VNI":1,"VtepMAC":"02:00:00:00:00:01"}`}},
		Spec: corev1.NodeSpec{PodCIDR: m.source.String(), PodCIDRs: []string{m.source.String()}},
		Status: corev1.NodeStatus{Capacity: many, Allocatable: many,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: m.address},
				{Type: corev1.NodeHostName, Address: m.name}},
			Conditions: []corev1.NodeCondition{condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady"),
				condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory"),
				condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure"),
				condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID"),
				condition(corev1.NodeNetworkUnavailable, corev1.ConditionFalse, "FlannelIsUp")},
			NodeInfo: corev1.NodeSystemInfo{KernelVersion: kernel, OSImage: "swarm",
				OperatingSystem: "linux", Architecture: "amd64", ContainerRuntimeVersion: "containerd://2.1.0",
				KubeletVersion: "v1.36.3"}},
	}
}

// live renews the node's lease until the node vanishes.
func (m *machine) live(ctx context.Context) {
	leases := m.swarm.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	holder, seconds := m.name, int32(leaseTimes*m.swarm.leaseEvery/time.Second)
	for m.ctx.Err() == nil && ctx.Err() == nil {
		now := metav1.NowMicro()
		spec := coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now}
		patch, err := json.Marshal(map[string]any{"spec": spec})
		if err == nil {
			_, err = leases.Patch(ctx, m.name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		if apierrors.IsNotFound(err) {
			_, err = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: m.name}, Spec: spec},
				metav1.CreateOptions{})
		}
		m.swarm.trouble(ctx, "renew the lease of "+m.name, err)
		_ = sleep(ctx, m.swarm.leaseEvery)
	}
}

// follow begins and ends pods as the API asks for. One watch serves all nodes, where each kubelet has its own.
func (s *swarm) follow(ctx context.Context) error {
	factory := informers.NewSharedInformerFactory(s.client, 0)
	pods := factory.Core().V1().Pods().Informer()
	see := func(object any) {
		one, _ := object.(*corev1.Pod)
		if m := s.machines[one.Spec.NodeName]; m != nil && m.ctx.Err() == nil {
			m.see(ctx, one)
		}
	}
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see,
		UpdateFunc: func(_, object any) { see(object) },
		DeleteFunc: func(object any) {
			if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			if one, ok := object.(*corev1.Pod); ok && s.machines[one.Spec.NodeName] != nil {
				s.machines[one.Spec.NodeName].ended(one)
			}
		}})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced) {
		return ctx.Err()
	}
	return nil
}

// see begins a pod that is new, and ends one that is deleted, each in its time.
func (m *machine) see(ctx context.Context, object *corev1.Pod) {
	own, host := object.Namespace == v1alpha1.Namespace, object.Spec.HostNetwork
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.pods[object.UID]
	after := func(d time.Duration, what string, do func(context.Context, *corev1.Pod) error) {
		time.AfterFunc(d, func() {
			if m.ctx.Err() == nil {
				m.swarm.trouble(ctx, what+" "+object.Namespace+"/"+object.Name, do(ctx, object))
			}
		})
	}
	switch {
	case object.DeletionTimestamp != nil:
		if known != nil && known.ending {
			return
		}
		if known == nil {
			known = m.add(object)
		}
		known.ending = true
		grace := time.Duration(0)
		if object.DeletionGracePeriodSeconds != nil {
			grace = time.Duration(*object.DeletionGracePeriodSeconds) * time.Second
		}
		after(min(grace, m.swarm.times.end(own, host)), "end", m.end)
	case known == nil:
		m.add(object)
		after(m.swarm.times.begin(own, host), "begin", m.begin)
	}
}

// add knows a pod from now on. The lock is held.
func (m *machine) add(object *corev1.Pod) *pod {
	p := &pod{namespace: object.Namespace, name: object.Name, uid: object.UID, conf: m.conf}
	if !object.Spec.HostNetwork {
		p.address = m.give()
	}
	m.pods[object.UID] = p
	return p
}

// begin marks a pod as running and ready, and begins what runs in it.
func (m *machine) begin(ctx context.Context, object *corev1.Pod) error {
	m.mu.Lock()
	p := m.pods[object.UID]
	if p == nil || p.ending {
		m.mu.Unlock()
		return nil
	}
	address := m.address
	if p.address.IsValid() {
		address = p.address.String()
		m.swarm.addresses.Store(address, true)
	}
	inside, stop := context.WithCancel(m.ctx)
	p.stop = stop
	m.mu.Unlock()
	m.leave(object)
	if network := probes(object); network != "" {
		m.probers.begin(network, object.UID)
	}
	patch, err := json.Marshal(map[string]any{"status": running(object, m.address, address)})
	if err != nil {
		return err
	}
	err = insist(ctx, func(ctx context.Context) error {
		_, err := m.swarm.client.CoreV1().Pods(object.Namespace).Patch(ctx, object.Name, types.StrategicMergePatchType,
			patch, metav1.PatchOptions{}, "status")
		return err
	})
	if err == nil && object.Spec.ServiceAccountName == manifest.AgentName && object.Namespace == v1alpha1.Namespace {
		context.AfterFunc(ctx, stop)
		go func() { m.swarm.trouble(inside, "agent of "+m.name, m.agent(inside, object)) }()
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// insist calls the API server again while it is away, as a kubelet does.
func insist(ctx context.Context, call func(context.Context) error) error {
	return outage.Retry(ctx, outage.Limits{Away: 2 * outage.Bound, Refused: outage.Bound}, nil, call)
}

// probes is the network that a prober's pod measures in; empty for other pods.
func probes(object *corev1.Pod) string {
	switch {
	case object.Namespace != v1alpha1.Namespace:
		return ""
	case object.Labels[manifest.LabelApp] == manifest.HostProberName:
		return "host"
	}
	return object.Labels[v1alpha1.LabelProbe]
}

func running(object *corev1.Pod, host, address string) corev1.PodStatus {
	now, yes := metav1.Now(), true
	status := corev1.PodStatus{Phase: corev1.PodRunning, HostIP: host, HostIPs: []corev1.HostIP{{IP: host}},
		PodIP: address, PodIPs: []corev1.PodIP{{IP: address}}, StartTime: &now, ObservedGeneration: object.Generation}
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized,
		corev1.ContainersReady, corev1.PodReady} {
		status.Conditions = append(status.Conditions,
			corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	for _, c := range object.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses,
			corev1.ContainerStatus{Name: c.Name, Ready: true, Started: &yes, Image: c.Image, ImageID: c.Image,
				ContainerID: "containerd://" + string(object.UID),
				State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}})
	}
	return status
}

// end stops what runs in a pod and lets the API forget it, as a kubelet does.
func (m *machine) end(ctx context.Context, object *corev1.Pod) error {
	m.ended(object)
	now := int64(0)
	err := insist(ctx, func(ctx context.Context) error {
		return m.swarm.client.CoreV1().Pods(object.Namespace).Delete(ctx, object.Name,
			metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &object.UID}})
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// ended stops what runs in a pod, and takes its address back.
func (m *machine) ended(object *corev1.Pod) {
	m.mu.Lock()
	p := m.pods[object.UID]
	delete(m.pods, object.UID)
	if p != nil && p.address.IsValid() {
		delete(m.given, p.address)
		m.swarm.addresses.Delete(p.address.String())
	}
	m.mu.Unlock()
	if p == nil {
		return
	}
	if p.stop != nil {
		p.stop()
		if network := probes(object); network != "" {
			m.probers.end(network)
		}
	}
}

// agent runs the node's agent with the credentials that a kubelet gives to its pod, until the pod ends.
func (m *machine) agent(ctx context.Context, object *corev1.Pod) error {
	hours := int64(12 * 3600)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hours,
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1",
			Name: object.Name, UID: object.UID}}}
	var token *authenticationv1.TokenRequest
	err := insist(ctx, func(ctx context.Context) (err error) {
		token, err = m.swarm.client.CoreV1().ServiceAccounts(object.Namespace).CreateToken(ctx, manifest.AgentName,
			request, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("ask for its token: %w", err)
	}
	config := rest.AnonymousClientConfig(m.swarm.config)
	config.BearerToken, config.UserAgent, config.QPS, config.Burst = token.Status.Token, "theseus-agent", 50, 100
	config.Dial = (&net.Dialer{}).DialContext // a connection of its own
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	for {
		once, restart := context.WithCancel(ctx)
		m.mu.Lock()
		m.restart = restart
		m.mu.Unlock()
		one := &agent.Agent{Name: m.name, Node: m, Client: client, Log: m.swarm.log.With("node", m.name),
			Pod: string(object.UID), Probers: m.probers}
		err := one.Run(once)
		ended := once.Err() == nil // by itself
		if restart(); ended || sleep(ctx, restartAfter) != nil {
			return err
		}
	}
}
