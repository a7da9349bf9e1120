// Copyright The Lanyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mutate_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/lanyard-dev/lanyard/pkg/annotations"
	"github.com/lanyard-dev/lanyard/pkg/mutate"
	"github.com/lanyard-dev/lanyard/pkg/mutate/reason"
)

// The golden decisions show the details, and lanyard explain the rest.
func TestAFindingNamesTheFieldAndTheNextStep(t *testing.T) {
	t.Parallel()
	const (
		role    = "arn:aws:iam::111122223333:role/app"
		token   = "AWS_WEB_IDENTITY_TOKEN_FILE"
		verify  = "spec.initContainers[lanyard-verify]"
		correct = "Correct the name in the annotation."
		remove  = "Remove the annotation, or use another ServiceAccount for Windows."
	)
	main := func(env string) string {
		return `{"metadata":{"name":"pod"},"spec":{"serviceAccountName":"app","containers":[{"name":"main","env":[` + env + `]}]}}`
	}
	annotated := func(values, spec string) string {
		return `{"metadata":{"name":"pod","annotations":{` + values + `}},"spec":{"serviceAccountName":"app","containers":[{"name":"main"}` + spec + `}}`
	}
	aws := map[string]string{annotations.AWSRoleARN: role}
	with := func(key, value string) map[string]string {
		return map[string]string{annotations.AWSRoleARN: role, annotations.Prefix + key: value}
	}
	var unknown []string
	var notFound []mutate.Finding // the last one stands for the rest
	for i := range 40 {
		name := "x" + strconv.Itoa(i)
		unknown = append(unknown, name)
		if i <= 32 {
			notFound = append(notFound, mutate.Finding{Reason: reason.ContainerNotFound, Container: name, Field: "metadata.annotations[lanyard.dev/skip-containers]", Got: name, Fix: correct})
		}
	}
	for sentence, test := range map[string]struct {
		settings string
		account  map[string]string
		pod      string
		want     []mutate.Finding // without details
	}{
		"credentials of its own": {"", aws, main(set(token, "/own")), []mutate.Finding{{
			Reason: reason.EnvironmentTaken, Container: "main", Field: "env[" + token + "]", Fix: "Remove " + token + " from the container to use the injected aws identity.",
		}}},
		"a token alone": {"", map[string]string{annotations.Tokens: "aws"}, main(""), []mutate.Finding{{
			Reason: reason.EnvironmentIncomplete, Container: "main", Field: "env[AWS_ROLE_ARN]", Want: "a value", Fix: "Set AWS_ROLE_ARN in the container if it needs aws.",
		}}},
		"an empty role": {"", aws, main(set("AWS_ROLE_ARN", "")), []mutate.Finding{{
			Reason: reason.EnvironmentShadowed, Container: "main", Field: "env[AWS_ROLE_ARN]", Want: "a value", Fix: "Remove AWS_ROLE_ARN from the container.",
		}}},
		"static keys": {"", aws, main(set("AWS_ACCESS_KEY_ID", own) + "," + set("AWS_SECRET_ACCESS_KEY", own)), []mutate.Finding{{
			Reason: reason.EnvironmentShadowed, Container: "main", Field: "env[AWS_ACCESS_KEY_ID], env[AWS_SECRET_ACCESS_KEY]", Fix: "Remove AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY from the container.",
		}}},
		"a profile that the ServiceAccount does not have": {"", map[string]string{annotations.AWSRoleARN: role, annotations.AWSRoleARN + ".audit": role, annotations.AWSRoleARN + ".ops": role}, main(set("AWS_PROFILE", "audits")), []mutate.Finding{{
			Reason: reason.EnvironmentShadowed, Container: "main", Field: "env[AWS_PROFILE]", Got: "audits", Want: "default, audit, ops",
			Fix: "Select one of these profiles, or add the profile to the ServiceAccount.",
		}}},
		"a name that is too short for a session": {"", with("aws-session-name", "pod"), strings.Replace(main(""), `"pod"`, `"p"`, 1), []mutate.Finding{{
			Reason: reason.PodNameUnusable, Container: "main", Field: "metadata.name", Got: "1 characters", Want: "2 to 64 characters", Fix: "Use a name of 2 to 64 characters.",
		}}},
		"a volume with the name of the copy": {"", with("aws-token-path", "/var/run/secrets/a/token"), annotated("", `],"volumes":[{"name":"aws-iam-token","emptyDir":{}}]`), []mutate.Finding{{
			Reason: reason.VolumeNameTaken, Container: "main", Field: "spec.volumes[aws-iam-token]", Fix: "Rename this volume of the pod, or recreate the pod if it runs already.",
		}}},
		"an unknown container": {"", aws, annotated(`"lanyard.dev/containers":"main,mian"`, "]"), []mutate.Finding{
			{Reason: reason.ContainerNotFound, Container: "mian", Field: "metadata.annotations[lanyard.dev/containers]", Got: "mian", Want: "main", Fix: correct},
		}},
		"very many unknown containers": {"", aws, annotated(`"lanyard.dev/skip-containers":"`+strings.Join(unknown, ",")+`"`, "]"), notFound},
		"no container is left": {"", aws, annotated(`"lanyard.dev/skip-containers":"main"`, "]"), []mutate.Finding{
			{
				Reason: reason.NoContainer, Field: "metadata.annotations[lanyard.dev/containers], metadata.annotations[lanyard.dev/skip-containers]",
				Fix: `Correct lanyard.dev/containers or lanyard.dev/skip-containers. If the pod needs no credentials, annotate it with lanyard.dev/inject: "false" instead.`,
			},
			{Reason: reason.ContainerNotSelected, Container: "main"},
		}},
		"a verified start without an image": {"", with("verify", "wait"), main(""), []mutate.Finding{{
			Reason: reason.NotVerified, Field: verify, Fix: "Set verifiedStart.enabled in the chart, or remove the annotation.",
		}}},
		"a verified start on Windows": {"verify-image: image:1", with("verify", "wait"), annotated("", `],"os":{"name":"windows"}`), []mutate.Finding{{
			Reason: reason.NotVerified, Field: verify, Fix: remove,
		}}},
		"a verified start, and a container with the name": {"verify-image: image:1", with("verify", "wait"), annotated("", `,{"name":"lanyard-verify"}]`), []mutate.Finding{{
			Reason: reason.NotVerified, Field: verify, Fix: "Rename the container.",
		}}},
		"a verified start, and too many containers": {"verify-image: image:1", with("verify", "wait"), annotated("", strings.Repeat(`,{"name":"c"}`, 511)+"]"), []mutate.Finding{{
			Reason: reason.NotVerified, Field: verify, Fix: "Use fewer containers.",
		}}},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			checkDecision(t, test.settings, test.account, test.pod, test.want)
		})
	}
}

// checkDecision compares the findings about a new pod, without their details.
func checkDecision(t *testing.T, settings string, account map[string]string, pod string, want []mutate.Finding) {
	t.Helper()
	s, err := mutate.ParseSettings([]byte(settings), nil)
	if err != nil {
		t.Fatal(err)
	}
	read, err := mutate.ReadPod([]byte(pod), s)
	if err != nil {
		t.Fatal(err)
	}
	got, err := mutate.Decide(s, &annotations.Object{Namespace: "team", Name: "app", Annotations: account}, nil, read)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.Findings, cmpopts.IgnoreFields(mutate.Finding{}, "Detail")); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}
