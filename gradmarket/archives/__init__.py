"""Archives of jobs as others read them: from folders and static servers, by digest, without trust in any."""
