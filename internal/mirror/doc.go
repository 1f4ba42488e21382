// Package mirror is the room of the second cluster: its configuration, its copy of the objects, and the
// names, certificates and cloud permissions that move with the traffic.
//
// Belongs here: config (of kops, Cluster API and kubeadm), splice (YAML edited in place), kopsname, objects
// (which objects are copied) and replica (the copying), freeze (a deploy freeze), image (names of images)
// and registry (whether they exist, and pushing), certs and certs/prover, cloud and cloud/aws, dns (its zone, names and
// shift are data; dns itself and byrecord, rfc2136 and route53 act on name servers), rehearsal (a small copy of a
// cluster, on which a change is rehearsed), scratch (makes that copy and removes it) and standin (the program in its
// containers).
//
// Does not belong here: the order in which a change uses all this (change/mirror).
//
// Door: certs, certs/prover, cloud, cloud/aws, config, dns, dns/names, dns/shift, dns/zone, freeze, image,
// objects, registry, rehearsal, replica, scratch, splice, standin.
// Hands: certs/prover, cloud/aws, dns, dns/byrecord, dns/rfc2136, dns/route53, registry, replica, scratch, standin.
// Tests: certs/certtest, cloud/aws/awstest, dns/dnstest.
package mirror
