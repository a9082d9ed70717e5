BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0003');
CREATE TABLE messages (
	id VARCHAR(36) NOT NULL, 
	project_id VARCHAR(255) NOT NULL, 
	event_id VARCHAR(255) NOT NULL, 
	user_message VARCHAR(1024) NOT NULL, 
	message_level VARCHAR(255) NOT NULL, 
	resource_type VARCHAR(255), 
	resource_uuid VARCHAR(36), 
	request_id VARCHAR(255) NOT NULL, 
	created_at DATETIME NOT NULL, 
	expires_at DATETIME NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "messages" VALUES('8fdcf96c-fc7c-4fd5-9396-eb225df8275f','project','VOLUME_VOLUME_001_003','no backend can hold this volume (fake: it is in availability_zone nova, not mars)','ERROR','VOLUME',NULL,'req-test','2026-11-22 06:23:44.570416','2126-12-22 06:23:44.570416');
CREATE TABLE services (
	host VARCHAR(255) NOT NULL, 
	binary VARCHAR(255) NOT NULL, 
	disabled BOOLEAN NOT NULL, 
	disabled_reason VARCHAR(255), 
	updated_at DATETIME, 
	PRIMARY KEY (host, binary)
);
CREATE TABLE snapshots (
	id VARCHAR(36) NOT NULL, 
	volume_id VARCHAR(36) NOT NULL, 
	display_name VARCHAR(255), 
	display_description VARCHAR(255), 
	volume_size INTEGER NOT NULL, 
	status VARCHAR(255) NOT NULL, 
	status_reason VARCHAR(1024), 
	project_id VARCHAR(255) NOT NULL, 
	user_id VARCHAR(255) NOT NULL, 
	metadata JSON NOT NULL, 
	created_at DATETIME, 
	updated_at DATETIME, 
	deleted_at DATETIME, 
	deleted BOOLEAN NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(volume_id) REFERENCES volumes (id)
);
INSERT INTO "snapshots" VALUES('8e89ebd9-c6c9-4f36-b221-67f4ea9d0d2e','63e1666c-a3fc-4f52-8b7d-79f4bdfca9d5','first',NULL,1,'available',NULL,'project','user','{}','2026-11-22 06:23:44.170601','2026-11-22 06:23:44.367084',NULL,0);
INSERT INTO "snapshots" VALUES('22880988-b6f3-46c9-8563-8d6d7a3136bb','63e1666c-a3fc-4f52-8b7d-79f4bdfca9d5','second',NULL,1,'available',NULL,'project','user','{}','2026-11-22 06:23:44.393434','2026-11-22 06:23:44.434448',NULL,0);
CREATE TABLE volume_attachment (
	id VARCHAR(36) NOT NULL, 
	volume_id VARCHAR(36) NOT NULL, 
	instance_uuid VARCHAR(36), 
	attached_host VARCHAR(255), 
	mountpoint VARCHAR(255), 
	attach_time DATETIME, 
	detach_time DATETIME, 
	attach_status VARCHAR(255) NOT NULL, 
	attach_mode VARCHAR(2), 
	connector TEXT, 
	connection_info TEXT, 
	initiator VARCHAR(255), 
	leaving VARCHAR(255), 
	auth_username VARCHAR(255), 
	auth_password VARCHAR(255), 
	created_at DATETIME, 
	updated_at DATETIME, 
	deleted_at DATETIME, 
	deleted BOOLEAN NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(volume_id) REFERENCES volumes (id)
);
INSERT INTO "volume_attachment" VALUES('91a1f521-8a27-436e-a645-3e4d8befb41b','bc3acebf-03c4-4902-a797-55cbaca183b2',NULL,'reader','na','2026-11-22 06:23:43.813764',NULL,'attaching','ro','{"initiator":"iqn.1994-05.com.example:reader","host":"reader","ip":"127.0.0.1"}','{"driver_volume_type":"iscsi","target_iqn":"iqn.2010-10.org.openstack:volume-bc3acebf-03c4-4902-a797-55cbaca183b2","target_portal":"127.0.0.1:3260","target_lun":0,"auth_method":"CHAP","access_mode":"ro","attachment_id":"91a1f521-8a27-436e-a645-3e4d8befb41b","cacheable":false,"encrypted":false,"enforce_multipath":false,"qos_specs":null}','iqn.1994-05.com.example:reader',NULL,'fcpoQofFrARKwnZ5Z2AR','VvDFNXjzt8vIul26','2026-11-22 06:23:43.771341','2026-11-22 06:23:43.814254',NULL,0);
INSERT INTO "volume_attachment" VALUES('56c27206-a800-4fb1-b7bb-d6289a992a6d','bc3acebf-03c4-4902-a797-55cbaca183b2',NULL,'writer','na','2026-11-22 06:23:43.843645',NULL,'attached','rw','{"initiator":"iqn.1994-05.com.example:writer","host":"writer","ip":"127.0.0.1"}','{"driver_volume_type":"iscsi","target_iqn":"iqn.2010-10.org.openstack:volume-bc3acebf-03c4-4902-a797-55cbaca183b2","target_portal":"127.0.0.1:3260","target_lun":0,"auth_method":"CHAP","access_mode":"rw","attachment_id":"56c27206-a800-4fb1-b7bb-d6289a992a6d","cacheable":false,"encrypted":false,"enforce_multipath":false,"qos_specs":null}','iqn.1994-05.com.example:writer',NULL,'WkEflvJ7HkEyqhRrjogs','JzEfptzKiR8riiXu','2026-11-22 06:23:43.831464','2026-11-22 06:23:43.887871',NULL,0);
INSERT INTO "volume_attachment" VALUES('b1df486d-f92d-4752-909d-014570e7a313','bc3acebf-03c4-4902-a797-55cbaca183b2',NULL,NULL,NULL,NULL,NULL,'reserved',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-22 06:23:43.931003','2026-11-22 06:23:43.931058',NULL,0);
CREATE TABLE volume_type_extra_specs (
	volume_type_id VARCHAR(36) NOT NULL, 
	"key" VARCHAR(255) NOT NULL, 
	value VARCHAR(255) NOT NULL, 
	PRIMARY KEY (volume_type_id, "key"), 
	FOREIGN KEY(volume_type_id) REFERENCES volume_types (id)
);
INSERT INTO "volume_type_extra_specs" VALUES('4035e792-82d1-43f4-a127-4c5067785b0d','multiattach','<is> True');
CREATE TABLE volume_types (
	id VARCHAR(36) NOT NULL, 
	name VARCHAR(255) NOT NULL, 
	description VARCHAR(255), 
	is_public BOOLEAN NOT NULL, 
	created_at DATETIME, 
	updated_at DATETIME, 
	PRIMARY KEY (id), 
	UNIQUE (name)
);
INSERT INTO "volume_types" VALUES('4035e792-82d1-43f4-a127-4c5067785b0d','multiattach',NULL,1,'2026-11-22 06:23:43.515408',NULL);
CREATE TABLE volumes (
	id VARCHAR(36) NOT NULL, 
	display_name VARCHAR(255), 
	display_description VARCHAR(255), 
	size INTEGER NOT NULL, 
	status VARCHAR(255) NOT NULL, 
	status_reason VARCHAR(1024), 
	backend VARCHAR(255) NOT NULL, 
	project_id VARCHAR(255) NOT NULL, 
	user_id VARCHAR(255) NOT NULL, 
	availability_zone VARCHAR(255) NOT NULL, 
	multiattach BOOLEAN NOT NULL, 
	bootable BOOLEAN NOT NULL, 
	volume_type_id VARCHAR(36), 
	metadata JSON NOT NULL, 
	created_at DATETIME, 
	updated_at DATETIME, 
	deleted_at DATETIME, 
	deleted BOOLEAN NOT NULL, 
	snapshot_id VARCHAR(36), 
	source_volid VARCHAR(36), 
	intent JSON, 
	leaving VARCHAR(255), 
	migration_status VARCHAR(255), 
	PRIMARY KEY (id)
);
INSERT INTO "volumes" VALUES('bc3acebf-03c4-4902-a797-55cbaca183b2',NULL,NULL,2,'available',NULL,'fake','project','user','nova',1,0,'4035e792-82d1-43f4-a127-4c5067785b0d','{}','2026-11-22 06:23:43.542200','2026-11-22 06:23:43.921025',NULL,0,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "volumes" VALUES('63e1666c-a3fc-4f52-8b7d-79f4bdfca9d5','plain','d',1,'available',NULL,'fake','project','user','nova',0,0,NULL,'{"a": "b"}','2026-11-22 06:23:43.941303','2026-11-22 06:23:43.998779',NULL,0,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "volumes" VALUES('d3f5f03e-10d3-4431-88d5-9ff5b57a7222','gone',NULL,1,'deleting',NULL,'fake','project','user','nova',0,0,NULL,'{}','2026-11-22 06:23:44.093238','2026-11-22 06:23:44.218682','2026-11-22 06:23:44.218659',1,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "volumes" VALUES('03f1f861-f78c-4fab-9fb7-c6668cd31b54','extending',NULL,1,'extending',NULL,'fake','project','user','nova',0,0,NULL,'{}','2026-11-22 06:23:44.481745','2026-11-22 06:23:44.536408',NULL,0,NULL,NULL,'{"size": 2}',NULL,NULL);
CREATE INDEX volumes_type ON volumes (volume_type_id) WHERE deleted = 0;
CREATE INDEX volumes_of_source ON volumes (source_volid) WHERE deleted = 0;
CREATE INDEX volumes_backend ON volumes (backend, status) WHERE deleted = 0;
CREATE INDEX volumes_of_snapshot ON volumes (snapshot_id) WHERE deleted = 0;
CREATE INDEX volumes_page ON volumes (created_at, id) WHERE deleted = 0;
CREATE INDEX volumes_project_page ON volumes (project_id, created_at, id) WHERE deleted = 0;
CREATE INDEX snapshots_page ON snapshots (created_at, id) WHERE deleted = 0;
CREATE INDEX snapshots_of_volume ON snapshots (volume_id, created_at, id) WHERE deleted = 0;
CREATE INDEX snapshots_project_page ON snapshots (project_id, created_at, id) WHERE deleted = 0;
CREATE INDEX attachments_page ON volume_attachment (created_at, id) WHERE deleted = 0;
CREATE INDEX attachments_of_initiator ON volume_attachment (volume_id, initiator) WHERE deleted = 0;
CREATE INDEX attachments_of_instance ON volume_attachment (instance_uuid) WHERE deleted = 0;
CREATE INDEX attachments_of_volume ON volume_attachment (volume_id, attach_status) WHERE deleted = 0;
COMMIT;
