// Package cloud tests the comparison of two clusters in the cloud against kops' cloudmock, in process, and against
// kops' own names. The mock stands in for Amazon: it is not Amazon, and leaves out managed policies and trust.
package cloud

import (
	"context"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"k8s.io/kops/cloudmock/aws/mockec2"
	"k8s.io/kops/cloudmock/aws/mockiam"
	"k8s.io/kops/pkg/apis/kops"
	"k8s.io/kops/pkg/model"
	kopsiam "k8s.io/kops/pkg/model/iam"

	"github.com/theseus-cni/theseus/internal/mirror/cloud"
	own "github.com/theseus-cni/theseus/internal/mirror/cloud/aws"
)

const trust = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}`

// world is what kops makes of two clusters, and what users added to the first.
type world struct {
	t   *testing.T
	iam *mockiam.MockIAM
	ec2 *mockec2.MockEC2
}

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// cluster makes the roles, profiles and groups of a cluster, and returns the id of the nodes' group.
func (w *world) cluster(name string) string {
	ctx := context.Background()
	c := &model.KopsModelContext{IAMModelContext: kopsiam.IAMModelContext{Cluster: &kops.Cluster{}}}
	c.Cluster.Name = name
	nodes := ""
	for _, role := range []kops.InstanceGroupRole{kops.InstanceGroupRoleControlPlane, kops.InstanceGroupRoleNode} {
		iamName, group := c.IAMName(role), c.SecurityGroupName(role)
		must[*iam.CreateRoleOutput](w.t)(w.iam.CreateRole(ctx,
			&iam.CreateRoleInput{RoleName: &iamName, AssumeRolePolicyDocument: aws.String(trust)}))
		must[*iam.PutRolePolicyOutput](w.t)(w.iam.PutRolePolicy(ctx,
			&iam.PutRolePolicyInput{RoleName: &iamName, PolicyName: &iamName,
				PolicyDocument: aws.String(
					`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:Get*","Resource":"arn:aws:s3:::state/` +
						name + `/*"}]}`)}))
		must[*iam.CreateInstanceProfileOutput](w.t)(w.iam.CreateInstanceProfile(ctx,
			&iam.CreateInstanceProfileInput{InstanceProfileName: &iamName}))
		must[*iam.AddRoleToInstanceProfileOutput](w.t)(w.iam.AddRoleToInstanceProfile(ctx,
			&iam.AddRoleToInstanceProfileInput{InstanceProfileName: &iamName, RoleName: &iamName}))
		nodes = *must[*ec2.CreateSecurityGroupOutput](w.t)(w.ec2.CreateSecurityGroup(ctx,
			&ec2.CreateSecurityGroupInput{GroupName: &group, VpcId: aws.String("vpc-1")})).GroupId
	}
	return nodes
}

// TestCloudmock: a policy of the nodes' own, a group that lets them in and an issuer go over, and are taken back, with
// names that kops cuts and with such that it does not.
func TestCloudmock(t *testing.T) {
	for _, original := range []string{"blue.example.org",
		"a-very-long-name-of-a-cluster.with.many.labels.in.its.name.example.org"} {
		w := &world{t, &mockiam.MockIAM{}, &mockec2.MockEC2{}}
		ctx := context.Background()
		old, mirror := w.cluster(original), w.cluster("green.example.org")
		roles := must[*iam.ListRolesOutput](t)(w.iam.ListRoles(ctx, &iam.ListRolesInput{})).Roles
		for _, r := range roles {
			if strings.HasPrefix(*r.RoleName, "nodes.") && !strings.Contains(*r.RoleName, "green") {
				must[*iam.PutRolePolicyOutput](t)(w.iam.PutRolePolicy(ctx,
					&iam.PutRolePolicyInput{RoleName: r.RoleName, PolicyName: aws.String("additional." + *r.RoleName),
						PolicyDocument: aws.String(strings.Replace(trust, "sts:AssumeRole", "s3:*", 1))}))
			}
		}
		must[*iam.CreateOpenIDConnectProviderOutput](t)(w.iam.CreateOpenIDConnectProvider(ctx,
			&iam.CreateOpenIDConnectProviderInput{Url: aws.String("https://oidc." + original),
				ClientIDList: []string{"amazonaws.com"}}))
		database := *must[*ec2.CreateSecurityGroupOutput](t)(w.ec2.CreateSecurityGroup(ctx,
			&ec2.CreateSecurityGroupInput{GroupName: aws.String("database"), VpcId: aws.String("vpc-1")})).GroupId
		must[*ec2.AuthorizeSecurityGroupIngressOutput](t)(w.ec2.AuthorizeSecurityGroupIngress(ctx,
			&ec2.AuthorizeSecurityGroupIngressInput{GroupId: &database,
				IpPermissions: []types.IpPermission{{IpProtocol: aws.String("tcp"), FromPort: aws.Int32(5432),
					ToPort: aws.Int32(5432), UserIdGroupPairs: []types.UserIdGroupPair{{GroupId: &old}}}}}))

		c := &own.Cloud{IAM: w.iam, EC2: w.ec2}
		plan := func() *cloud.Plan {
			return cloud.Compare(must[*cloud.Inventory](t)(c.Read(ctx)), original, "green.example.org", nil)
		}
		p := plan()
		var got []string
		for _, a := range p.Actions {
			got = append(got, a.String())
		}
		want := []string{"create-issuer oidc.green.example.org",
			"put-inline-policy nodes.green.example.org: additional.nodes.green.example.org",
			"allow-ingress " + database + ": tcp 5432 with " + mirror}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: the plan is\n%s\nand not\n%s\n%+v",
				original, strings.Join(got, "\n"), strings.Join(want, "\n"), p.Findings)
			continue
		}
		begun := 0
		begin := func() error { begun++; return nil }
		for range 2 { // a second time changes nothing
			for _, a := range p.Steps(false) {
				if err := c.Do(ctx, a, false, begin); err != nil {
					t.Fatal(err)
				}
			}
		}
		if again := plan(); begun != len(want) || len(again.Actions) > 0 {
			t.Errorf("%d writes, and still to do: %+v", begun, again.Actions)
		}
		for _, a := range p.Steps(true) {
			if a.Rule == nil { // the mock revokes nothing
				if err := c.Do(ctx, a, true, begin); err != nil {
					t.Fatal(err)
				}
			}
		}
		if again := plan(); len(again.Actions) != len(want)-1 {
			t.Errorf("after the way back: %+v", again.Actions)
		}
	}
}
